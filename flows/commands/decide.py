"""``repro decide``."""

from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import JsonOption, SiteOption
from flows.inspection.decide import LARGEST_BUDGET, Question
from flows.orchestration.dispatch import dispatch
from flows.runner.group import GroupFailed
from flows.views.terminal import say, show
from infra.servers.environment import configure_libraries

NAMED = Parameter(help="a run, perhaps with settings in quotes: 'demo --set model.p_drop=0.2'")


def decide(
    a: Annotated[str, NAMED],
    b: Annotated[str, NAMED],
    *,
    detect: Annotated[float, Parameter(help="the smallest difference in BLEU that matters to you")] = 0.5,
    budget: Annotated[int, Parameter(help=f"the most seeds of each run, from 2 to {LARGEST_BUDGET}")] = 10,
    on: Annotated[str, Parameter(help="the set that decides; by default the dev set")] = "",
    site: SiteOption = "local",
    as_json: JsonOption = False,
) -> None:
    """Train seeds of two runs until it is clear whether the second is better.

    It ends when the second run is better or worse, when the difference is smaller than --detect, or when the budget is
    used up: "undecided". The total error rate is 5 % (docs/judging.md). The same command continues after an interrupt.

    Example: repro decide demo "demo --set model.p_drop=0.2" --detect 0.3 --budget 10 --on test
    """
    question = Question.ask(a, b, detect, budget, on, site)
    configure_libraries(question.a.site.root)
    found = question.run(dispatch, say)
    show(found.sentence, result=found.as_json() if as_json else None)
    if found.failure:
        raise GroupFailed(found)
