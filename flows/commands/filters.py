"""``repro filters``."""

import json
from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter

from flows.commands.completion import RUN_NAMES
from flows.commands.options import JsonOption, OverridesOption, SiteOption
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
    """Show what each filter of a run rejected: counts, and sample pairs with the measured and allowed values.

    Runs nothing: the clean stage of the run must be done.

    Example: repro filters demo --samples 5
    """
    from flows.inspection.trace import trace_context
    from flows.runner.request import RunRequest, make_plan
    from tasks.cleaning.rejections import explain_rejections

    if samples < 0:
        raise BadConfiguration(f"--samples is {samples}, allowed is a whole number of at least 0")
    context = trace_context(make_plan(RunRequest(run, until="clean", overrides=overrides, site=site).resolve()))
    clean = context.made.get(("clean", ""))
    if clean is None:
        why = context.reasons.get(("clean", ""), "not made yet")
        raise BadConfiguration(f"the text of {context.run} is not cleaned ({why}); run `repro run {run} --until clean`")
    rules = explain_rejections(clean.path(), context.filters, samples, seed)
    if as_json:
        result = {"run": context.run, "clean": f"{clean.path()}", "filters": [asdict(rule) for rule in rules]}
        print(json.dumps(result, ensure_ascii=False))
        return
    from rich.console import Console

    from flows.views.filters_view import print_rejections

    print_rejections(rules, Console(highlight=False))
