"""Finds stored translations of other systems (``repro score``) by names such as ``system:google``."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from flows.runs.unknown_names import did_you_mean
from infra.errors import BadConfiguration
from infra.store.manifest import Manifest
from infra.store.store import Store
from model.metric_names import BLEU
from tasks.evaluation.html import score_text

SYSTEM = "system:"


@dataclass(frozen=True)
class ForeignScore:
    """The translations of one set by another system, and their score."""

    name: str
    """``system:google``."""
    on: str
    """The set as its user named it: ``demo/test``."""
    files: str
    """The source of the translations."""
    score: Manifest
    translations: Manifest

    def line(self) -> str:
        """``system:google  2026-11-26 09:00  demo/test 34.12 (33.05–35.20)  nrefs:1|…  from google.txt``."""
        at = f"{datetime.fromisoformat(self.score.made['at']).astimezone():%Y-%m-%d %H:%M}"
        score = f"{self.on} {score_text(self.score.facts, BLEU)}"
        return "  ".join((self.name, at, score, self.score.facts["signature"], f"from {self.files}"))

    def as_json(self) -> dict[str, Any]:
        names = {"name": self.name, "on": self.on, "created": self.score.made.get("at", "")}
        return {**names, "files": self.files, "score": self.score.key, **self.score.facts}

    def remove(self, store: Store) -> None:
        for made in (self.score, self.translations):
            store.remove(made.stage, made.key)


def foreign_scores(store: Store) -> list[ForeignScore]:
    """List all of a store by name and set, the oldest first; after an interrupted removal, a set may have two."""
    received = {f"receive/{each.key}": each for each in store.list("receive")}
    scores = store.list("score") if received else ()
    found = [
        ForeignScore(f"{SYSTEM}{made.facts['system']}", f"{made.facts['on']}", f"{made.facts['files']}", score, made)
        for score in scores
        for made in (received[name] for name in score.inputs if name in received)
    ]
    return sorted(found, key=lambda each: (each.name, each.on, f"{each.score.made.get('at')}"))


def system_scores(store: Store, name: str) -> dict[str, ForeignScore]:
    """Find the scores of ``system:google`` by set. Raises BadConfiguration if there is no such system."""
    known = foreign_scores(store)
    if found := {each.score.item: each for each in known if each.name == name}:
        return found
    names = sorted({each.name for each in known})
    raise BadConfiguration(
        f"no system {name!r} was scored here{did_you_mean(name, names)}, there are: {', '.join(names) or 'none'}"
    )
