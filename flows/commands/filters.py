"""``repro filters``."""

from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import JsonOption, SiteOption
from flows.runs.completion import RUN_NAMES, OverridesOption
from flows.views.terminal import console, print_json, say
from infra.errors import BadConfiguration


def filters(
    run: Annotated[str, RUN_NAMES, Parameter(help="name of a run, FILE.toml or FILE.py:NAME")],
    *,
    samples: Annotated[int, Parameter(help="rejected pairs to show for each filter")] = 3,
    seed: Annotated[int, Parameter(help="seed that chooses the samples")] = 1,
    overrides: OverridesOption = (),
    site: SiteOption = "local",
    as_json: JsonOption = False,
) -> None:
    """Show what each filter of a run rejected: counts, and sample pairs with measured and allowed values.

    Runs nothing: the stage clean of the run must have finished, or rejected the text.

    Example: repro filters demo --samples 5
    """
    from flows.inspection.trace import find_made
    from flows.runner.request import RunRequest, make_plan
    from tasks.cleaning.rejections import explain_rejections, refusal

    for option, number in (("--samples", samples), ("--seed", seed)):
        if number < 0:
            raise BadConfiguration(f"{option} is {number}, allowed is a whole number of at least 0")
    # With the run's own limit a text that was cleaned before the limit was lowered would be refused here too.
    overrides = (*overrides, "filters.max_rejected=1")
    resolved = RunRequest(run, until="clean", overrides=overrides, site=site).resolve()
    planned = make_plan(resolved)
    found = find_made(planned)
    clean = found.made.get(("clean", ""))
    name = resolved.run.name
    failed = planned.store.failed_folder("clean", planned.outcome.rows[-1].key)
    refused = "" if clean else refusal(failed).get("why", "")
    if clean is None and not refused:
        why = found.reasons.get(("clean", ""), "not made yet")
        raise BadConfiguration(f"the text of {name} is not cleaned ({why}); run `repro run {run} --until clean`")
    folder = clean.path() if clean else failed
    rules = explain_rejections(folder, resolved.run.filters, samples, seed)
    if refused:
        say(f"clean refused this text, and this is what it rejected. {refused}")
    if as_json:
        result = {"run": name, "clean": f"{folder}", "refused": refused, "filters": [asdict(rule) for rule in rules]}
        print_json(result)
        return
    from flows.views.filters_view import print_rejections

    print_rejections(rules, console(stderr=False))
