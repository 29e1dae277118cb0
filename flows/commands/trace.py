"""``repro trace``."""

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import JsonOption, OverridesOption, SiteOption
from flows.views.terminal import console
from infra.errors import BadConfiguration


def trace(
    run: Annotated[str, Parameter(help="a run's name, or FILE.py:NAME for one of your own")],
    pair_id: Annotated[str, Parameter(help="the name of a part of the corpus or of a set, and a line: demo:17")],
    *,
    attention: Annotated[Path | None, Parameter(help="write the cross-attention as a picture (PNG)")] = None,
    overrides: OverridesOption = (),
    site: SiteOption = "local",
    as_json: JsonOption = False,
) -> None:
    """Print the walk of one pair through a run: raw text, each filter's verdict, pieces, shard; of a dev or test pair
    also hypothesis, beams, attention and scores. Makes nothing; a stage that is not made yet is named.

    Example: repro trace demo test:17 --attention looked.png
    """
    from rich.console import Console

    from flows.inspection.trace import trace_pair
    from flows.views.trace_view import print_trace
    from tasks.tracing.steps import Decoded

    walk = trace_pair(run, pair_id, overrides, site)
    if attention:
        decoded = [step for step in walk.steps if isinstance(step, Decoded)]
        if not decoded:
            raise BadConfiguration(f"--attention: {pair_id} was not decoded, which only pairs of dev and test sets are")
        from tasks.evaluation import plots

        (step,) = decoded
        attention.write_bytes(plots.attention(step.weights, step.source_pieces, step.written_pieces, plots.LIGHT))
    if as_json:
        print(json.dumps(walk.as_json(), ensure_ascii=False))
    else:
        print_trace(walk, Console(highlight=False))
    if attention:
        console().print(f"attention: {attention}", markup=False, soft_wrap=True)
