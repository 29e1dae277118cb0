"""A question about two runs trains as few seeds as it needs, goes on from cached ones, and may stay undecided."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_pipeline import run_small

from flows.inspection import decide
from flows.inspection.decide import Decision, Question
from flows.inspection.seed_groups import GroupComparison
from flows.runner.group import Members
from flows.runner.outcome import Outcome
from flows.runner.request import RunPlan, RunRequest
from infra.errors import BadConfiguration
from tasks.engine.planner import StageResult
from tasks.evaluation.significance import SeedScores, compare_groups, sequential_tails

SEARCH = "small --set decoding.beam=1"


@pytest.mark.slow  # two trainings of the small run, each translated twice
def test_seeds_are_trained_until_it_is_decided_and_cached_ones_cost_nothing(small: Path) -> None:
    question = Question.ask("small", SEARCH, detect=50.0, budget=3, on="", site="local")
    said: list[str] = []
    found = question.run(run_small, said.append)
    assert found.verdict == "no such difference"
    assert list(found.outcomes) == [f"{seed} of {name}" for seed in (1, 2) for name in ("small", SEARCH)]
    scores = [outcome.scores["dev"]["bleu"] for outcome in found.outcomes.values()]
    last = found.standings[-1]
    assert [each[seed] for seed in (1, 2) for each in (last.a, last.b)] == pytest.approx(scores, abs=1e-4)
    made = [row.stage for row in found.outcomes[f"2 of {SEARCH}"].rows if row.state == "completed"]
    assert "train" not in made, "both score the same training"
    assert f": {SEARCH} and small differ by less than 50: " in said[-1]

    def refuse(planned: RunPlan) -> Outcome:
        raise AssertionError(planned.resolved.run.name)

    again = question.run(refuse, said.append)
    assert (again.verdict, again.standings) == (found.verdict, found.standings)


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Decision]:
    """The decision where the second run's seeds are better by ``gaps``."""

    def answer(gaps: Sequence[float], failing: int = -1) -> Decision:
        ran: list[str] = []

        def run(_: Members, member: str, *__: Any) -> Outcome:
            ran.append(member)
            failure = "train failed: lightning" if len(ran) == failing else ""
            return Outcome("small", [StageResult("train", "", member, "cached", 0.0)], failure)

        def compared(*_: Any, budget: int) -> GroupComparison:
            seeds = len(ran) // 2
            both = ([30.0] * seeds, [30.0 + gap for gap in gaps[:seeds]])
            a, b = (SeedScores(np.array(scores), np.repeat([scores], 9, axis=0).T) for scores in both)
            a_and_b = [dict(enumerate(scores)) for scores in both]
            return GroupComparison("dev", "bleu", *a_and_b, compare_groups(a, b, sequential_tails(budget)[seeds - 2]))

        monkeypatch.setattr(Members, "run", run)
        monkeypatch.setattr(decide, "compare_on", compared)
        demo = RunRequest("demo").resolve()
        question = Question(("demo", "other"), demo, demo, 0.3, len(gaps), "dev")
        return question._decide(Members(question.group, "", run_small, print))

    return answer


@pytest.mark.parametrize(
    ("gaps", "verdict", "seeds"),
    [
        ([1.0, 1.1, 0.9, 1.0, 1.1, 1.0], "better", 3),
        ([-1.0, -1.1, -0.9, -1.0, -1.1, -1.0], "worse", 3),
        ([0.01, -0.01, 0.0, 0.01, 0.0, -0.01], "no such difference", 3),
        ([3.0, -3.0, 3.0, -3.0, 3.0, -3.0], "undecided", 6),
    ],
)
def test_it_stops_when_it_is_decided(
    answer: Callable[..., Decision], gaps: list[float], verdict: str, seeds: int
) -> None:
    found = answer(gaps)
    assert (found.verdict, len(found.standings) + 1) == (verdict, seeds)
    assert verdict in found.sentence or "differ by less than 0.3" in found.sentence


def test_a_seed_that_fails_ends_it(answer: Callable[..., Decision]) -> None:
    found = answer([1.0] * 6, failing=4)
    assert found.failure == "1 of 4 seeds failed: seed 2 of other: train failed: lightning"
    assert found.standings == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("demo", "demo --set", 0.3, 10, ""), "'demo --set' is named, allowed is a run"),
        (("demo", "multi30k-ende", 0.0, 10, ""), "--detect is 0.0, allowed is a number of BLEU above 0"),
        (("demo", "multi30k-ende", float("nan"), 10, ""), "--detect is nan"),
        (("demo", "multi30k-ende", 0.3, 1, ""), "--budget is 1, allowed is a number of seeds from 2 to 50"),
        (("demo", "demo --set model.p_drop=0.2", 0.3, 4, "flickr"), "--on is 'flickr', allowed is a set of both runs"),
        (("demo", "nothing", 0.3, 4, ""), "nothing"),
    ],
)
def test_impossible_questions_are_named(words: Any, message: str) -> None:
    with pytest.raises(BadConfiguration, match=message):
        Question.ask(*words, "local")


def test_another_budget_is_another_group_of_runs() -> None:
    budgets = [Question.ask("demo", "demo --set model.p_drop=0.2", 0.3, n, "", "local").group.name for n in (4, 4, 6)]
    assert budgets[0] == budgets[1] != budgets[2]
