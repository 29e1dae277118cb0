"""Trains as many seeds of two runs as it takes to say which is better: ``repro decide A B --detect 0.3``.

After each seed of both runs the difference of their mean BLEU on one set has an interval that may be looked at each
time (``sequential_tails``): with 5 % of error in all, any of them misses the true difference. It ends when the interval
is on one side of zero, or within ±``detect``, or when the budget is used up.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from flows.runner.artifact_names import named_with_settings
from flows.runner.group import Group, GroupResults, Members, RunOne, Say, run_group
from flows.runner.outcome import Outcome, stage_folder
from flows.runner.request import ResolvedRun, RunPlan, RunRequest
from flows.runner.seeds import requests_by_seed
from flows.runs import Run
from infra.errors import BadConfiguration
from tasks.evaluation.significance import GroupDifference, SeedScores, Verdict, compare_groups, sequential_tails
from tasks.evaluation.system_comparison import same_sentences
from tasks.evaluation.translation_metrics import score_metrics

LARGEST_BUDGET = 50


class _NeedsWork(Exception):
    """A stage is missing, so the question needs servers and a run in MLflow."""


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
        if not (math.isfinite(detect) and detect > 0):
            raise BadConfiguration(f"--detect is {detect}, allowed is a number of BLEU above 0")
        if not 2 <= budget <= LARGEST_BUDGET:
            raise BadConfiguration(f"--budget is {budget}, allowed is a number of seeds from 2 to {LARGEST_BUDGET}")
        named = [named_with_settings(text) for text in (a, b)]
        if named[0] == named[1]:
            raise BadConfiguration(f"both runs are {a!r}, allowed is another run, or 'NAME --set FIELD=VALUE'")
        first, second = (RunRequest(run, overrides=overrides, site=site).resolve() for run, overrides in named)
        on = on or first.run.dev
        common = [name for name in _sets(first.run) if name in _sets(second.run)]
        if on not in common:
            raise BadConfiguration(f"--on is {on!r}, allowed is a set of both runs: {', '.join(common) or 'none'}")
        return Question((a, b), first, second, detect, budget, on)

    @cached_property
    def members(self) -> Mapping[int, Sequence[ResolvedRun]]:
        """The runs of each seed: of ``a`` and of ``b``."""
        first = self.a.run.training.seed
        seeds = range(first, first + self.budget)
        asked = (requests_by_seed(resolved, seeds) for resolved in (self.a, self.b))
        return {seed: (of_a.resolve(), of_b.resolve()) for (seed, of_a), (_, of_b) in zip(*asked, strict=True)}

    @property
    def group(self) -> Group:
        """Its runs in MLflow are below one in the experiment of ``a``."""
        params = {"detect": self.detect, "budget": self.budget, "on": self.on}
        digest = hashlib.sha256(json.dumps([self.names, self.on]).encode()).hexdigest()[:6]
        title = f"decide {' or '.join(self.names)}"
        return Group(f"decide {digest}", title, "seed", self.a.run.name, self.a.site, (), params)

    def run(self, run_one: RunOne, say: Say) -> "Decision":
        """Train until it is decided or the budget is used up; seeds that are cached cost nothing."""
        try:
            return self._decide(Members(self.group, "", _refuse, lambda _: None))
        except _NeedsWork:
            return run_group(self.group, run_one, say, self._decide)

    def _decide(self, members: Members) -> "Decision":
        outcomes: dict[str, Outcome] = {}
        standings: list[GroupDifference] = []
        scored: list[tuple[SeedScores, SeedScores]] = []
        tails = sequential_tails(self.budget)
        for seed, both in self.members.items():
            pair = []
            for name, resolved in zip(self.names, both, strict=True):
                member = f"{seed} of {name}"
                outcomes[member] = members.run(member, resolved, resolved.request.overrides)
                pair.append(outcomes[member])
                if outcomes[member].failure:
                    return Decision(members.group, outcomes, question=self, scored=scored, standings=standings)
            scored.append(self._scores(pair[0], pair[1]))
            if len(scored) < 2:
                members.say("1 seed of each: two or more say something")
                continue
            a, b = (SeedScores.joined(each) for each in zip(*scored, strict=True))
            paired = _training(pair[0]) == _training(pair[1])
            standings.append(compare_groups(a, b, tails[len(scored) - 2], paired=paired))
            found = Decision(members.group, outcomes, question=self, scored=scored, standings=standings)
            members.say(f"{len(scored)} seeds of each: {found.sentence}")
            if found.verdict != "undecided":
                break
        return Decision(members.group, outcomes, question=self, scored=scored, standings=standings)

    def _scores(self, a: Outcome, b: Outcome) -> tuple[SeedScores, SeedScores]:
        """BLEU of one seed of both. Raises BadConfiguration if their references differ."""
        tables = []
        for outcome in (a, b):
            row = next(row for row in outcome.rows if (row.stage, row.item) == ("score", self.on))
            tables.append(pl.read_parquet(stage_folder(row, self.a.site) / "sentences.parquet"))
        same_sentences(self.on, *tables)
        references = tables[0]["reference"].to_list()
        bleu = score_metrics(self.a.run.corpus.target_language)[0]
        of_a, of_b = (SeedScores.of(bleu, [table["hypothesis"].to_list()], references) for table in tables)
        return of_a, of_b


@dataclass(frozen=True, kw_only=True)
class Decision(GroupResults):
    """Where a question stands: the scores of each seed of both runs, and the difference after 2, 3, … seeds."""

    question: Question
    scored: Sequence[tuple[SeedScores, SeedScores]]
    standings: Sequence[GroupDifference]

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
        said = {
            "better": f"{b} is better than {a}",
            "worse": f"{b} is worse than {a}",
            "no such difference": f"{b} and {a} differ by less than {self.question.detect:g}",
            "undecided": "undecided",
        }[self.verdict]
        measured = f"{said}: {last.effect:+.2f} BLEU on {self.question.on} ({last.low:+.2f} to {last.high:+.2f})"
        if self.verdict != "undecided":
            return measured
        if last.sentence_reach > self.question.detect:
            return f"{measured}; its sentences alone leave ±{last.sentence_reach:.2f}, which only a larger set mends"
        return f"{measured}; so many seeds show {last.detectable:.2f}"

    @property
    def markdown(self) -> str:
        return f"{self.sentence}\n\n{super().markdown}"

    def as_json(self) -> dict[str, object]:
        asked = self.question
        return {
            "names": list(asked.names),
            "detect": asked.detect,
            "budget": asked.budget,
            "on": asked.on,
            "verdict": self.verdict,
            "seeds": [
                {"seed": seed, "a": float(a.scores[0]), "b": float(b.scores[0])}
                for seed, (a, b) in zip(asked.members, self.scored, strict=False)
            ],
            "standings": [vars(each) for each in self.standings],
            "failures": self.failures,
        }


def _sets(run: Run) -> tuple[str, ...]:
    return run.evaluate or tuple(each.name for each in run.sets)


def _training(outcome: Outcome) -> str:
    return next(row.key for row in outcome.rows if (row.stage, row.item) == ("train", ""))


def _refuse(planned: RunPlan) -> Outcome:
    raise _NeedsWork(planned.resolved.run.name)
