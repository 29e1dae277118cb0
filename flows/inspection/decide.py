"""Trains seeds of two runs until it is clear which is better: ``repro decide A B --detect 0.3``.

After each seed of both runs, it computes an interval for the difference of their mean BLEU on one set
(``sequential_tails``). It ends when the interval is on one side of zero, or within ±``detect``, or without budget.
"""

import math
from dataclasses import asdict, dataclass

from flows.inspection.compare import ScoredSystem, system_of
from flows.inspection.seed_groups import GroupComparison, compare_on
from flows.runner.artifact_names import named_with_settings
from flows.runner.group import Group, GroupResults, Members, RunOne, Say, digest, run_group
from flows.runner.outcome import Outcome
from flows.runner.request import ResolvedRun, RunRequest
from flows.runner.seeds import requests_by_seed
from infra.errors import BadConfiguration
from infra.site import open_store
from infra.tracking.model_version import HEADLINES
from tasks.evaluation.significance import Verdict

LARGEST_BUDGET = 50


@dataclass(frozen=True)
class Question:
    """Asks whether ``b`` is better than ``a`` by BLEU on the set ``on``; differences below ``detect`` do not matter."""

    names: tuple[str, str]
    a: ResolvedRun
    b: ResolvedRun
    detect: float
    budget: int
    """The largest number of seeds per run."""
    on: str

    @staticmethod
    def ask(a: str, b: str, detect: float, budget: int, on: str, site: str) -> "Question":
        """Resolve a question; ``on`` is "" for the dev set. Raises BadConfiguration."""
        if not 0 < detect < math.inf:
            raise BadConfiguration(f"--detect is {detect}, allowed is a number of BLEU above 0")
        if not 2 <= budget <= LARGEST_BUDGET:
            raise BadConfiguration(f"--budget is {budget}, allowed is a number of seeds from 2 to {LARGEST_BUDGET}")
        named = [named_with_settings(text) for text in (a, b)]
        first, second = (RunRequest(run, overrides=overrides, site=site).resolve() for run, overrides in named)
        on = on or first.run.dev
        scored = [each.run.evaluate or [known.name for known in each.run.sets] for each in (first, second)]
        common = [name for name in scored[0] if name in scored[1]]
        if on not in common:
            raise BadConfiguration(f"--on is {on!r}, allowed is a set of both runs: {', '.join(common) or 'none'}")
        return Question((a, b), first, second, detect, budget, on)

    @property
    def group(self) -> Group:
        """The group of its runs; its parent run in MLflow is in the experiment of ``a``."""
        params = {"detect": self.detect, "budget": self.budget, "on": self.on}
        title = f"decide {' or '.join(self.names)}"
        name = f"decide {digest([self.names, *params.values()])}"
        return Group(name, title, "seed", self.a.run.name, self.a.site, (), params)

    def run(self, run_one: RunOne, say: Say) -> "Decision":
        """Train until the question is decided or the budget is used up; cached seeds cost nothing."""
        return run_group(self.group, run_one, say, self._decide)

    def _decide(self, members: Members) -> "Decision":
        found = Decision(group=members.group, outcomes={}, question=self, standings=[])
        store = open_store(self.a.site)
        groups: tuple[dict[int, ScoredSystem], dict[int, ScoredSystem]] = ({}, {})
        first = self.a.run.training.seed
        seeds = range(first, first + self.budget)
        requests = (requests_by_seed(resolved, seeds) for resolved in (self.a, self.b))
        for pair in zip(*requests, strict=True):
            for name, group, (seed, request) in zip(self.names, groups, pair, strict=True):
                member = f"{seed} of {name}"
                found.outcomes[member] = members.run(member, request.resolve(), request.overrides)
                if found.outcomes[member].failure:
                    return found
                rows = [row for row in found.outcomes[member].rows if (row.stage, row.item) == ("score", self.on)]
                group[seed] = system_of(name, {row.item: store.find("score", row.key) for row in rows}, store)
            if len(groups[0]) > 1:
                found.standings.append(compare_on(self.on, *groups, self.a.site, budget=self.budget))
            members.say(f"{len(groups[0])} seeds of each: {found.sentence}")
            if found.verdict != "undecided":
                break
        return found


@dataclass(frozen=True, kw_only=True)
class Decision(GroupResults):
    """The state of a question: the comparison of both runs after 2, 3, … seeds of each."""

    question: Question
    outcomes: dict[str, Outcome]
    standings: list[GroupComparison]

    @property
    def verdict(self) -> Verdict:
        return self.standings[-1].difference.verdict(self.question.detect) if self.standings else "undecided"

    @property
    def sentence(self) -> str:
        """The verdict as a sentence, with the interval."""
        a, b = self.question.names
        if not self.standings:
            return "undecided: two seeds of each are needed"
        last = self.standings[-1].difference
        said = f"{b} is {self.verdict} than {a}" if self.verdict in ("better", "worse") else self.verdict
        if self.verdict == "no such difference":
            said = f"{b} and {a} differ by less than {self.question.detect:g}"
        measured = f"{last.effect:+.2f} {HEADLINES[self.standings[-1].measure]} on {self.question.on}"
        return f"{said}: {measured} ({last.interval}); this number of seeds can show {last.detectable:.2f}"

    @property
    def markdown(self) -> str:
        return f"{self.sentence}\n\n{super().markdown}"

    def as_json(self) -> dict[str, object]:
        return {
            "names": list(self.question.names),
            **self.group.params,
            "verdict": self.verdict,
            "standings": [asdict(each) for each in self.standings],
            "failures": self.failures,
        }
