"""Trains as many seeds of two runs as it takes to say which is better: ``repro decide A B --detect 0.3``.

After each seed of both runs the difference of their mean BLEU on one set has an interval that may be looked at each
time (``sequential_tails``): with 5 % of error in all, any of them misses the true difference. It ends when the interval
is on one side of zero, or within ±``detect``, or when the budget is used up.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from flows.runner.artifact_names import named_with_settings
from flows.runner.group import Group, GroupResults, Members, RunOne, Say, digest, run_group
from flows.runner.outcome import Outcome, stage_folder
from flows.runner.request import ResolvedRun, RunRequest
from flows.runner.seeds import requests_by_seed
from infra.errors import BadConfiguration
from infra.tracking.model_version import HEADLINES, headline
from tasks.engine.planner import StageResult
from tasks.evaluation.significance import (
    GroupDifference,
    SeedScores,
    Verdict,
    compare_groups,
    seed_scores,
    sequential_tails,
)
from tasks.evaluation.translation_metrics import score_metric

LARGEST_BUDGET = 50


@dataclass(frozen=True)
class Question:
    """Whether ``b`` is better than ``a`` by BLEU on the set ``on``; less than ``detect`` is as good as nothing."""

    names: tuple[str, str]
    a: ResolvedRun
    b: ResolvedRun
    detect: float
    budget: int
    """The most seeds of each run."""
    on: str

    @staticmethod
    def ask(a: str, b: str, detect: float, budget: int, on: str, site: str) -> "Question":
        """The question behind the words; ``on`` is "" for the dev set. Raises BadConfiguration."""
        if not 0 < detect < math.inf:
            raise BadConfiguration(f"--detect is {detect}, allowed is a number of BLEU above 0")
        if not 2 <= budget <= LARGEST_BUDGET:
            raise BadConfiguration(f"--budget is {budget}, allowed is a number of seeds from 2 to {LARGEST_BUDGET}")
        named = [named_with_settings(text) for text in (a, b)]
        if named[0] == named[1]:
            raise BadConfiguration(f"both runs are {a!r}, allowed is another run, or 'NAME --set FIELD=VALUE'")
        first, second = (RunRequest(run, overrides=overrides, site=site).resolve() for run, overrides in named)
        on = on or first.run.dev
        scored = [each.run.evaluate or [known.name for known in each.run.sets] for each in (first, second)]
        common = [name for name in scored[0] if name in scored[1]]
        if on not in common:
            raise BadConfiguration(f"--on is {on!r}, allowed is a set of both runs: {', '.join(common) or 'none'}")
        return Question((a, b), first, second, detect, budget, on)

    @property
    def seeds(self) -> Sequence[int]:
        """All that it may train."""
        first = self.a.run.training.seed
        return range(first, first + self.budget)

    @property
    def group(self) -> Group:
        """Its runs in MLflow are below one in the experiment of ``a``."""
        params = {"detect": self.detect, "budget": self.budget, "on": self.on}
        title = f"decide {' or '.join(self.names)}"
        return Group(f"decide {digest([self.names, self.on])}", title, "seed", self.a.run.name, self.a.site, (), params)

    def metric(self, outcomes: Iterable[Outcome]) -> str:
        """The ``headline`` of their scores."""
        return headline(*(outcome.own_scores.get(self.on, {}) for outcome in outcomes))

    def run(self, run_one: RunOne, say: Say) -> "Decision":
        """Train until it is decided or the budget is used up; seeds that are cached cost nothing."""
        return run_group(self.group, run_one, say, self._decide)

    def _decide(self, members: Members) -> "Decision":
        found = Decision(group=members.group, outcomes={}, question=self, scored=[], standings=[])
        requests = (requests_by_seed(resolved, self.seeds) for resolved in (self.a, self.b))
        for (seed, of_a), (_, of_b) in zip(*requests, strict=True):
            for name, request in zip(self.names, (of_a, of_b), strict=True):
                member = f"{seed} of {name}"
                found.outcomes[member] = members.run(member, request.resolve(), request.overrides)
                if found.outcomes[member].failure:
                    return found
            pair = [*found.outcomes.values()][-2:]
            found.scored.append(self._scores(pair))
            count = len(found.scored)
            if count < 2:
                members.say("1 seed of each: two or more say something")
                continue
            a, b = (SeedScores.joined(each) for each in zip(*found.scored, strict=True))
            paired = len({_row(outcome, "train").key for outcome in pair}) == 1
            tail = sequential_tails(self.budget, paired=paired)[count - 2]
            found.standings.append(compare_groups(a, b, tail, paired=paired))
            members.say(f"{count} seeds of each: {found.sentence}")
            if found.verdict != "undecided":
                break
        return found

    def _scores(self, pair: Sequence[Outcome]) -> Sequence[SeedScores]:
        """The ``headline`` of one seed of both. Raises BadConfiguration if their references differ."""
        folders = [stage_folder(_row(outcome, "score", self.on), self.a.site) for outcome in pair]
        measure = score_metric(self.metric(pair), self.a.run.corpus.target_language)
        return seed_scores(self.on, measure, *([pl.read_parquet(folder / "sentences.parquet")] for folder in folders))


@dataclass(frozen=True, kw_only=True)
class Decision(GroupResults):
    """Where a question stands: the scores of each seed of both runs, and the difference after 2, 3, … seeds."""

    question: Question
    outcomes: dict[str, Outcome]
    scored: list[Sequence[SeedScores]]
    standings: list[GroupDifference]

    @property
    def verdict(self) -> Verdict:
        return self.standings[-1].verdict_on(self.question.detect) if self.standings else "undecided"

    @property
    def sentence(self) -> str:
        """The verdict in words, with the interval."""
        a, b = self.question.names
        if not self.standings:
            return "undecided: two seeds of each are needed"
        last = self.standings[-1]
        said = f"{b} is {self.verdict} than {a}" if self.verdict in ("better", "worse") else self.verdict
        if self.verdict == "no such difference":
            said = f"{b} and {a} differ by less than {self.question.detect:g}"
        measured = f"{last.effect:+.2f} {HEADLINES[self.question.metric(self.outcomes.values())]}"
        return f"{said}: {measured} on {self.question.on} ({last.interval}); so many seeds show {last.detectable:.2f}"

    @property
    def markdown(self) -> str:
        return f"{self.sentence}\n\n{super().markdown}"

    def as_json(self) -> dict[str, object]:
        scored = zip(self.question.seeds, self.scored, strict=False)
        return {
            "names": list(self.question.names),
            **self.group.params,
            "verdict": self.verdict,
            "seeds": [{"seed": seed, "a": float(a.scores[0]), "b": float(b.scores[0])} for seed, (a, b) in scored],
            "standings": [vars(each) for each in self.standings],
            "failures": self.failures,
        }


def _row(outcome: Outcome, stage: str, item: str = "") -> StageResult:
    return next(row for row in outcome.rows if (row.stage, row.item) == (stage, item))
