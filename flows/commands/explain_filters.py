"""``repro explain-filters``."""

import json
from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import AsJson, Overrides, Place
from infra.errors import BadConfiguration


def explain_filters(
    run: Annotated[str, Parameter(help="a run's name, or FILE.py:NAME for one of your own")],
    *,
    samples: Annotated[int, Parameter(help="rejected pairs to show of each filter")] = 3,
    seed: Annotated[int, Parameter(help="which of them")] = 1,
    overrides: Overrides = (),
    site: Place = "local",
    as_json: AsJson = False,
) -> None:
    """Print what each filter of a run rejected: how many pairs, and samples with the numbers behind the verdict. Makes
    nothing: the run's text must have been cleaned.

    Example: repro explain-filters demo --samples 5
    """
    from flows.inspection.trace import ground_of
    from flows.runner.run import Request
    from tasks.cleaning.explain import explained

    if samples < 0:
        raise BadConfiguration(f"--samples is {samples}, allowed is a whole number of at least 0")
    ground = ground_of(Request(run, until="clean", overrides=overrides, site=site))
    clean = ground.made.get(("clean", ""))
    if clean is None:
        why = ground.missing.get(("clean", ""), "not made yet")
        raise BadConfiguration(f"the text of {ground.run} is not cleaned ({why}): repro run {run} --until clean")
    rules = explained(clean.path(), ground.filters, samples, seed)
    if as_json:
        told = {"run": ground.run, "clean": f"{clean.path()}", "filters": [asdict(rule) for rule in rules]}
        print(json.dumps(told, ensure_ascii=False))
        return
    from rich.console import Console

    from flows.views.filters_view import draw

    draw(rules, Console(highlight=False))
