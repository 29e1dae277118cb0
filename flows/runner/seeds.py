"""Run one run with several seeds and compare their scores. Each seed is a separate run.

All seeds share the stages before training. The seed that the run declares needs no override, so it is the run itself
and moves aliases; other seeds are runs with an override, which move none.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flows.reproduce import STAGES
from flows.runner.outcome import Outcome, StageFailed
from flows.runner.request import ResolvedRun, RunRequest
from infra.errors import BadConfiguration
from model.metric_names import DEV_PERPLEXITY
from tasks.evaluation.seed_spread import MEASURES, SeedSpread

FIRST_SEEDED_STAGE = STAGES.index("train")
"""The first stage that depends on the seed."""


@dataclass
class SeedResults:
    """The outcome of each seed."""

    run: str
    dev: str
    outcomes: dict[int, Outcome] = field(default_factory=dict)

    @property
    def failed(self) -> list[int]:
        return [seed for seed, outcome in self.outcomes.items() if outcome.failure]

    def spreads(self) -> list[SeedSpread]:
        """The dev perplexity at the end of training, then the measures of each set."""
        perplexities = {
            seed: row.facts[DEV_PERPLEXITY]
            for seed, outcome in self.outcomes.items()
            for row in outcome.rows
            if row.stage == "train" and not row.item and row.facts
        }
        found = [SeedSpread(self.dev, DEV_PERPLEXITY, perplexities)]
        cards = {seed: outcome.own_scores for seed, outcome in self.outcomes.items()}
        for name in dict.fromkeys(name for card in cards.values() for name in card):
            for measure in MEASURES:
                found.append(
                    SeedSpread(name, measure, {s: card[name][measure] for s, card in cards.items() if name in card})
                )
        return [spread for spread in found if spread.values]

    def as_json(self) -> dict[str, Any]:
        seeds = {
            f"{seed}": {"failure": outcome.failure, "model_version": outcome.model_version}
            for seed, outcome in self.outcomes.items()
        }
        measures = [
            {"set": s.set_name, "measure": s.measure, "values": {f"{k}": v for k, v in s.values.items()}, **s.summary}
            for s in self.spreads()
        ]
        return {"run": self.run, "seeds": seeds, "measures": measures}


def parse_seeds(text: str) -> tuple[int, ...]:
    """The seeds of ``1,2,3``; raises BadConfiguration for anything but two or more different whole numbers."""
    parts = [part.strip() for part in text.split(",")]
    seeds = tuple(int(part) for part in parts if part.isdecimal())
    if len(seeds) < len(parts) or len(set(seeds)) < len(seeds) or len(seeds) < 2:
        raise BadConfiguration(f"--seeds is {text!r}, allowed are two or more different whole numbers, as in 1,2,3")
    return seeds


def requests_by_seed(resolved: ResolvedRun, seeds: Sequence[int]) -> Iterator[tuple[int, RunRequest]]:
    """Yield the request for each seed. Only the first one forces stages before training."""
    request = resolved.request
    if request.until and STAGES.index(request.until) < FIRST_SEEDED_STAGE:
        raise BadConfiguration(
            f"--seeds with --until {request.until}: only {STAGES[FIRST_SEEDED_STAGE]} and what follows has a seed"
        )
    for seed in seeds:
        override = () if seed == resolved.run.training.seed else (f"training.seed={seed}",)
        yield seed, replace(request, overrides=(*request.overrides, *override))
        if request.from_stage:
            later = max(FIRST_SEEDED_STAGE, STAGES.index(request.from_stage))
            request = replace(request, from_stage=STAGES[later])
        request = replace(
            request, force=tuple(name for name in request.force if STAGES.index(name) >= FIRST_SEEDED_STAGE)
        )


def run_seeds(
    resolved: ResolvedRun,
    seeds: Sequence[int],
    run_resolved: Callable[[ResolvedRun], Outcome],
    say: Callable[[str], None],
) -> SeedResults:
    """Run the request for each seed; a seed that fails does not stop the others."""
    found = SeedResults(resolved.run.name, resolved.run.dev)
    for seed, resolved_seed in [(seed, request.resolve()) for seed, request in requests_by_seed(resolved, seeds)]:
        say(f"seed {seed}")
        try:
            found.outcomes[seed] = run_resolved(resolved_seed)
        except StageFailed as failed:
            say(f"seed {seed}: {failed}")
            found.outcomes[seed] = failed.outcome
    return found
