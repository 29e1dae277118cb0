"""The translations of other systems that the store holds (``repro score``), by the name ``system:google``."""

from dataclasses import dataclass
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

    translations: Manifest
    score: Manifest

    @property
    def name(self) -> str:
        return f"{SYSTEM}{self.translations.facts['system']}"

    @property
    def on(self) -> str:
        """The set as its user named it: ``demo/test``."""
        return f"{self.translations.facts['on']}"

    @property
    def files(self) -> str:
        """Where the translations came from."""
        return f"{self.translations.facts['files']}"

    @property
    def artifacts(self) -> tuple[Manifest, Manifest]:
        return self.score, self.translations

    @property
    def made(self) -> str:
        return f"{self.score.made.get('at', '')}"[:16].replace("T", " ")

    def text(self, measure: str) -> str:
        """A score with its interval: ``34.12 (33.05–35.20)``."""
        return score_text(self.score.facts, measure)

    def line(self) -> str:
        """``system:google  2026-11-26 09:00  demo/test 34.12 (33.05–35.20)  nrefs:1|…  from google.txt``."""
        score = f"{self.on} {self.text(BLEU)}"
        return "  ".join((self.name, self.made, score, self.score.facts["signature"], f"from {self.files}"))

    def as_json(self) -> dict[str, Any]:
        names = {"name": self.name, "on": self.on, "created": self.score.made.get("at", "")}
        return {**names, "files": self.files, "score": self.score.key, **self.score.facts}

    def remove(self, store: Store) -> None:
        for made in self.artifacts:
            store.remove(made.stage, made.key)


def all_foreign_scores(store: Store) -> list[ForeignScore]:
    """All of a store, the oldest first: also those whose removal, in favour of newer ones, was interrupted."""
    received = {f"receive/{each.key}": each for each in store.list("receive")}
    scores = sorted(store.list("score"), key=lambda each: f"{each.made.get('at')}") if received else ()
    return [ForeignScore(received[name], score) for score in scores for name in score.inputs if name in received]


def foreign_scores(store: Store) -> list[ForeignScore]:
    """The newest of each system and set, by name and set."""
    found = {(each.name, each.on): each for each in all_foreign_scores(store)}
    return [found[place] for place in sorted(found)]


def system_scores(store: Store, name: str) -> dict[str, ForeignScore]:
    """The scores by set of ``system:google``. Raises BadConfiguration if there is no such system."""
    known = foreign_scores(store)
    if found := {each.score.item: each for each in known if each.name == name}:
        return found
    names = dict.fromkeys(each.name for each in known)
    there = ", ".join(names) or "none, `repro score` adds one"
    raise BadConfiguration(f"no system {name!r} was scored here{did_you_mean(name, names) or ','} there is: {there}")
