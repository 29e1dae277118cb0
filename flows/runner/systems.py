"""The translations of other systems that the store holds (``repro score``), by the name ``system:google``."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flows.runs.unknown_names import did_you_mean
from infra.errors import BadConfiguration
from infra.store.manifest import Manifest
from infra.store.store import Store
from model.metric_names import BLEU
from tasks.evaluation.html import score_text

SYSTEM = "system:"
RECEIVED = "receive"
"""The stage that took the translations."""


@dataclass(frozen=True)
class ForeignScore:
    """The translations of one set by another system, and their score. A system has at most one of each set."""

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
    def facts(self) -> Mapping[str, Any]:
        return self.score.facts

    @property
    def references(self) -> str:
        """Digest of the references of the set; scores with different references cannot be compared."""
        return f"{self.facts['references_sha256']}"

    def text(self, measure: str) -> str:
        """A score with its interval: ``34.12 (33.05–35.20)``."""
        return score_text(self.facts, measure)

    @property
    def made(self) -> str:
        return f"{self.score.made.get('at', '')}"[:16].replace("T", " ")

    def line(self) -> str:
        """``system:google  2026-11-26 09:00  demo/test 34.12  13a…  from google.txt``."""
        scores = f"{self.on} {self.text(BLEU)}"
        files = f"from {self.translations.facts['files']}"
        return "  ".join((self.name, self.made, scores, self.facts["signature"], files))

    def as_json(self) -> dict[str, Any]:
        names = {"name": self.name, "on": self.on, "created": self.score.made.get("at", "")}
        return {**names, "files": self.translations.facts["files"], "score": self.score.key, **self.facts}


def foreign_scores(store: Store) -> list[ForeignScore]:
    """All of a store, by name and set; of several scores of the same translations the newest."""
    received = {f"{RECEIVED}/{each.key}": each for each in store.list(RECEIVED)}
    scores = sorted(store.list("score"), key=lambda each: f"{each.made.get('at')}") if received else ()
    found = {name: ForeignScore(received[name], score) for score in scores for name in score.inputs if name in received}
    return sorted(found.values(), key=lambda each: (each.name, each.on))


def system_scores(store: Store, name: str) -> dict[str, ForeignScore]:
    """The scores by set of ``system:google``. Raises BadConfiguration if there is no such system."""
    known = foreign_scores(store)
    if found := {each.score.item: each for each in known if each.name == name}:
        return found
    names = ", ".join(dict.fromkeys(each.name for each in known)) or "none, `repro score` adds one"
    hint = did_you_mean(name, (each.name for each in known))
    raise BadConfiguration(f"no system {name!r} was scored here{hint or ','} there is: {names}")


def artifacts_of(store: Store, name: str) -> Iterator[tuple[str, str, str]]:
    """Stage, item and key of each artifact that a system alone has."""
    for item, each in system_scores(store, name).items():
        yield from ((made.stage, item, made.key) for made in (each.translations, each.score))


def forget(store: Store, name: str) -> list[str]:
    """Remove all that is stored of ``system:google``; gives its sets."""
    scores = system_scores(store, name)
    for stage, _, key in artifacts_of(store, name):
        store.remove(stage, key)
    return [each.on for each in scores.values()]
