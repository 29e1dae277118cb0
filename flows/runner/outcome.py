"""The outcome of a run or of a plan: one result per stage, and values derived from them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.site import Site, open_store
from tasks.engine.planner import StageResult
from tasks.evaluation.seed_spread import OWN_MODEL, SeedSpread, is_own, seed_item, seed_spreads
from tasks.reporting.remarks import run_remarks


@dataclass
class Outcome:
    """The results of a run's stages in the order in which they ended; ``failure`` is empty unless a stage failed."""

    run: str
    rows: list[StageResult] = field(default_factory=list)
    failure: str = ""

    @property
    def scores(self) -> dict[str, dict[str, Any]]:
        """The scores of each evaluation set; with ``decoding.ensemble`` also ``test/seed-2``, ``test/ensemble``."""
        return {row.item: dict(row.facts) for row in self.rows if row.stage == "score" and row.facts}

    @property
    def own_scores(self) -> dict[str, dict[str, Any]]:
        """The scores of each evaluation set by the run's own model."""
        return {item: card for item, card in self.scores.items() if is_own(item)}

    @property
    def training(self) -> StageResult | None:
        """The training of the run's own model: not that of a teacher, a reverse model or another seed."""
        return next((row for row in self.rows if (row.stage, row.item) == ("train", OWN_MODEL)), None)

    def remarks(self, dev: str) -> list[str]:
        """Warnings from the facts of translations and of the run's own model; ``dev`` is the run's dev set."""
        form, facts = (self.training.form, self.training.facts) if self.training else ({}, {})
        translations = {row.item: row.facts for row in self.rows if row.stage == "translate"}
        return run_remarks(dev, form.get("training", {}), facts, translations, self.own_scores)

    def seed_spreads(self, own_seed: int) -> list[SeedSpread]:
        """The scores by seed if the run has models of several seeds; ``own_seed`` is the seed of its own model."""
        by_set: dict[str, dict[str, dict[str, Any]]] = {}
        for item, card in self.scores.items():
            name, system = (item, seed_item(own_seed)) if is_own(item) else item.rsplit("/", 1)
            by_set.setdefault(name, {})[system] = card
        return seed_spreads({name: systems for name, systems in by_set.items() if len(systems) > 1})

    @property
    def model_version(self) -> str:
        """``name/number`` of the registered version, or empty."""
        versions = [f"{r.facts['name']}/{r.facts['version']}" for r in self.rows if r.stage == "register" and r.facts]
        return versions[-1] if versions else ""


class StageFailed(Exception):
    """A stage failed; ``outcome`` has the failure and the stages that finished before it."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.failure)
        self.outcome = outcome


def cached_outcome(planned: Outcome) -> Outcome | None:
    """Return the plan as the outcome if every stage is cached; None if there is work or a limit is broken."""
    if any(row.state != "cached" or row.is_refused for row in planned.rows):
        return None
    return planned


def stage_folder(row: StageResult, site: Site) -> Path:
    """Return the folder of a finished stage, downloaded if the store is remote."""
    store = open_store(site)
    manifest = store.find(row.stage, row.key)
    return store.artifact(manifest).path() if manifest else Path(row.path)
