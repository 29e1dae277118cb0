"""The outcome of a run or of a plan: one result for each stage, and what can be read from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from infra.site import Site, open_store
from tasks.engine.planner import StageResult


@dataclass
class Outcome:
    """The results of a run's stages in the order in which they ended; ``failure`` is empty where none failed."""

    run: str
    rows: list[StageResult] = field(default_factory=list)
    failure: str = ""

    @property
    def scores(self) -> dict[str, dict[str, Any]]:
        """The scores of each evaluation set."""
        return {row.item: dict(row.facts) for row in self.rows if row.stage == "score" and row.facts}

    @property
    def model_version(self) -> str:
        """``name/number`` of the registered version, or empty."""
        made = [f"{r.facts['name']}/{r.facts['version']}" for r in self.rows if r.stage == "register" and r.facts]
        return made[-1] if made else ""

    def as_json(self) -> dict[str, Any]:
        names = ("stage", "item", "key", "state", "seconds", "path", "facts", "why")
        stages = [{name: getattr(row, name) for name in names} for row in self.rows]
        return {"run": self.run, "stages": stages, "scores": self.scores, "model_version": self.model_version}

    @staticmethod
    def from_json(form: Mapping[str, Any]) -> "Outcome":
        return Outcome(form["run"], [StageResult(**row) for row in form["stages"]])


class StageFailed(Exception):
    """A stage failed; ``outcome`` has its failure and the stages that were done before it."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.failure)
        self.outcome = outcome


def cached_outcome(planned: Outcome) -> Outcome | None:
    """The outcome of a run in which every stage is a hit; None where there is work."""
    if any(row.state != "hit" for row in planned.rows):
        return None
    return Outcome(planned.run, [replace(row, state="cached") for row in planned.rows])


def stage_folder(row: StageResult, site: Site) -> Path:
    """The folder of a stage that is done, fetched if the store is remote."""
    store = open_store(site)
    manifest = store.manifest(row.stage, row.key)
    return store.artifact(manifest).path() if manifest else Path(row.path)
