"""Runs one run with several seeds and compares their scores. Each seed is a separate run.

All seeds share the stages before training. The run's own seed needs no override, so this run moves aliases. Other seeds
are runs with an override and move none.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flows.reproduce import STAGES
from flows.runner.group import Group, GroupResults, RunOne, Say, digest, run_members
from flows.runner.interrupted import attempt_to_resume, same_requests
from flows.runner.request import ResolvedRun, RunRequest
from flows.runs.overrides import run_title
from infra.errors import BadConfiguration
from infra.site import Site
from model.metric_names import DEV_PERPLEXITY
from tasks.evaluation.seed_spread import SeedSpread, seed_item, seed_spreads

SEEDED_STAGES = STAGES[STAGES.index("train") :]
"""The stages that depend on the seed."""


@dataclass(frozen=True)
class SeedResults(GroupResults):
    """The outcome of each seed."""

    dev: str = ""

    def spreads(self) -> list[SeedSpread]:
        """The dev perplexity at the end of training, then the measures of each set."""
        perplexities = {
            int(seed): outcome.training.facts[DEV_PERPLEXITY]
            for seed, outcome in self.outcomes.items()
            if outcome.training and outcome.training.facts
        }
        scores: dict[str, dict[str, dict[str, Any]]] = {}
        for seed, outcome in self.outcomes.items():
            for name, card in outcome.own_scores.items():
                scores.setdefault(name, {})[seed_item(int(seed))] = card
        spreads = [SeedSpread(self.dev, DEV_PERPLEXITY, perplexities), *seed_spreads(scores)]
        return [spread for spread in spreads if spread.values]

    def as_json(self) -> dict[str, Any]:
        seeds = {
            seed: {"failure": outcome.failure, "model_version": outcome.model_version}
            for seed, outcome in self.outcomes.items()
        }
        measures = [
            {"set": s.set_name, "measure": s.measure, "values": {f"{k}": v for k, v in s.values.items()}, **s.summary}
            for s in self.spreads()
        ]
        return {"run": self.group.experiment, "seeds": seeds, "measures": measures}


def parse_seeds(text: str) -> tuple[int, ...]:
    """Parse seeds such as ``1,2,3``. Raises BadConfiguration unless they are two or more different whole numbers."""
    parts = [part.strip() for part in text.split(",")]
    seeds = tuple(int(part) for part in parts if part.isdecimal())
    if len(seeds) < len(parts) or len(set(seeds)) < len(seeds) or len(seeds) < 2:
        raise BadConfiguration(f"--seeds is {text!r}, allowed are two or more different whole numbers, as in 1,2,3")
    return seeds


def requests_by_seed(resolved: ResolvedRun, seeds: Sequence[int]) -> Iterator[tuple[int, RunRequest]]:
    """Yield the request for each seed. Only the first request forces stages before training."""
    request = resolved.request
    if request.until and request.until not in SEEDED_STAGES:
        first = SEEDED_STAGES[0]
        raise BadConfiguration(f"--seeds with --until {request.until}: only {first} and what follows has a seed")
    for seed in seeds:
        override = () if seed == resolved.run.training.seed else (f"training.seed={seed}",)
        yield seed, replace(request, overrides=(*request.overrides, *override))
        if request.from_stage and request.from_stage not in SEEDED_STAGES:
            request = replace(request, from_stage=SEEDED_STAGES[0])
        request = replace(request, force=tuple(name for name in request.force if name in SEEDED_STAGES))


def _finished(site: Site, name: str, requests: Mapping[int, RunRequest]) -> Iterator[int]:
    """Yield the seeds that an earlier call of this command finished, if it did not finish others.

    These are the seeds before the first unfinished one, and later ones that started after it.
    """
    seeds = [*requests]
    unfinished = [seed for seed in seeds if attempt_to_resume(site, name, vars(requests[seed]))]
    if not unfinished:
        return
    starts = {seed: [*same_requests(site, name, vars(requests[seed]))] for seed in seeds}
    again = starts[unfinished[0]]
    begin = min(each.started for each in again if each.forced_attempt == again[0].forced_attempt)
    for place, seed in enumerate(seeds):
        is_later = starts[seed] and starts[seed][0].started >= begin
        if seed not in unfinished and (place < seeds.index(unfinished[0]) or is_later):
            yield seed


def run_seeds(resolved: ResolvedRun, seeds: Sequence[int], run_one: RunOne, say: Say) -> SeedResults:
    """Run the request for each seed; a seed that fails does not stop the others."""
    name = resolved.run.name
    requests = dict(requests_by_seed(resolved, seeds))
    for seed in _finished(resolved.site, name, requests):
        requests[seed] = replace(requests[seed], from_stage="", force=())
    members = {f"{seed}": request.resolve() for seed, request in requests.items()}
    overrides = resolved.request.overrides
    several = f"seeds {','.join(members)}"
    group = Group(
        name=f"{several} of {name}-{digest(overrides)}",
        title=run_title(several, overrides),
        noun="seed",
        experiment=name,
        site=resolved.site,
        overrides=overrides,
        members=members,
    )
    return run_members(group, 1, run_one, say, lambda outcomes: SeedResults(group, outcomes, dev=resolved.run.dev))
