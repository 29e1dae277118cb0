"""Scores of one run by seed (items ``test``, ``test/seed-2``), beside their ensemble's (``test/ensemble``)."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from infra.tracking.model_version import headline
from model.metric_names import CHRF

OWN_MODEL = ""
ENSEMBLE = "ensemble"
SEED = "seed-"


def seed_item(seed: int) -> str:
    """The end of the items of a seed's model."""
    return f"{SEED}{seed}"


def item_of(set_name: str, system: str) -> str:
    """The item of a set's translations or scores by the run's own model, another seed's or the ensemble."""
    return f"{set_name}/{system}" if system else set_name


def is_own(item: str) -> bool:
    """Whether an item belongs to the run's own model."""
    system = item.rpartition("/")[2] if "/" in item else OWN_MODEL
    return system != ENSEMBLE and not system.startswith(SEED)


@dataclass(frozen=True)
class SeedSpread:
    """One measure of one set by seed. Seeds that failed earlier are missing."""

    set_name: str
    measure: str
    values: Mapping[int, float]
    ensemble: float | None = None

    @property
    def summary(self) -> dict[str, float]:
        """``mean``, and for two or more seeds ``deviation``: the standard deviation with n - 1."""
        values = list(self.values.values())
        return {"mean": fmean(values)} | ({"deviation": stdev(values)} if len(values) > 1 else {})


def seed_spreads(scores: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[SeedSpread]:
    """Compare ``headline`` BLEU and chrF of each set by system: ``seed-1`` and so on, and perhaps ``ensemble``."""
    found = []
    for name, by_system in scores.items():
        seeds = {int(system.removeprefix(SEED)): card for system, card in by_system.items() if system != ENSEMBLE}
        ensemble = by_system.get(ENSEMBLE, {})
        for measure in (headline(*seeds.values()), CHRF):
            values = {seed: float(seeds[seed][measure]) for seed in sorted(seeds)}
            found.append(SeedSpread(name, measure, values, ensemble.get(measure)))
    return found
