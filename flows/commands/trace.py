"""``repro trace``."""

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.commands.completion import RUN_NAMES
from flows.commands.options import JsonOption, OverridesOption, SiteOption
from flows.views.terminal import console
from infra.errors import BadConfiguration


def trace(
    run: Annotated[str, RUN_NAMES, Parameter(help="name of a run, or FILE.py:NAME for your own")],
    pair_id: Annotated[
        str, Parameter(help="name of a corpus part or evaluation set and a line number, for example demo:17")
    ],
    *,
    attention: Annotated[Path | None, Parameter(help="write the cross-attention to this PNG file")] = None,
    overrides: OverridesOption = (),
    site: SiteOption = "local",
    as_json: JsonOption = False,
) -> None:
    """Trace one sentence pair through every stage of a run: raw text, filter verdicts, tokens, shard; for a dev or test
    pair also hypothesis, beams, attention and scores. Runs nothing; stages that have not run yet are named.

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
            raise BadConfiguration(f"--attention needs a pair of a dev or test set; {pair_id} was not decoded")
        from tasks.evaluation import plots

        (step,) = decoded
        attention.write_bytes(plots.attention(step.weights, step.source_pieces, step.written_pieces, plots.LIGHT))
    if as_json:
        print(json.dumps(walk.as_json(), ensure_ascii=False))
    else:
        print_trace(walk, Console(highlight=False))
    if attention:
        console().print(f"attention: {attention}", markup=False, soft_wrap=True)
