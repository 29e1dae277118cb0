"""``repro sweep``."""

import json
from typing import Annotated

from cyclopts import Parameter

from flows.commands.completion import RUN_NAMES
from flows.commands.options import JsonOption, OverridesOption, SiteOption
from flows.orchestration.dispatch import dispatch_group
from flows.tuning.sweep import SweepRequest, SweepResults
from flows.views.tables import sweep_table
from flows.views.terminal import console, say
from infra.servers.environment import configure_libraries, server_configured


def sweep(
    run: Annotated[str, RUN_NAMES, Parameter(help="name of a run (see `repro show`), or FILE.py:NAME for your own")],
    *,
    space: Annotated[
        tuple[str, ...],
        Parameter(
            help="a field and the values to search: FIELD=LOW..HIGH, FIELD=LOW..HIGH:log or FIELD=A,B,C; repeatable",
            negative=(),
            show_default=False,
        ),
    ],
    trials: Annotated[int, Parameter(help="number of trials, those of earlier calls of the same sweep included")] = 20,
    on: Annotated[str, Parameter(help="what to search for: dev.bleu, dev.chrf or dev.perplexity")] = "dev.bleu",
    prune: Annotated[bool, Parameter(help="end a training whose dev curve is worse than the median")] = True,
    overrides: OverridesOption = (),
    at_once: Annotated[int, Parameter(help="number of trials to run in parallel")] = 1,
    site: SiteOption = "local",
    take_over: Annotated[
        bool, Parameter(help="go on with a sweep that another machine of the bucket left behind", negative=())
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Search for the settings of a run with the best dev score.

    Each trial is a run up to the score of the dev set; trials share all stages that their settings leave equal.
    Optuna proposes the settings. The same command continues a sweep that was interrupted, tries trials that failed
    again, or adds trials with a larger --trials. No test set is translated.

    For example:

    repro sweep demo --space training.peak=1e-3..1e-2:log --space model.p_drop=0.1,0.2,0.3

    repro sweep demo --space training.warmup=50..400 --trials 10 --on dev.perplexity --set training.updates=200

    repro sweep wmt14-ende-base --site gpu --at-once 4 --space training.label_smoothing=0.05,0.1,0.2
    """
    resolved = SweepRequest(run, space, trials, on, prune, overrides, at_once, site, take_over).resolve()
    if resolved.base.remark:
        say(resolved.base.remark)
    configure_libraries(resolved.base.site.root)
    found: SweepResults = dispatch_group(resolved, server_configured())
    error = console()
    error.print()
    error.print(sweep_table(found))
    for text in ("", f"picture: {resolved.folder / 'sweep.png'}", f"best:    {found.command}"):
        error.print(text, markup=False, soft_wrap=True)
    if as_json:
        print(json.dumps(found.as_json(), ensure_ascii=False))
