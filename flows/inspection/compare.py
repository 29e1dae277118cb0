"""Two runs or model versions side by side: whose score artifacts are meant, and what they come to.

``multi30k-ende@champion`` and ``multi30k-ende/3`` are versions of the registry; any other word is a run, of which the
newest record counts that reached its scores.
"""

from dataclasses import dataclass

import polars as pl

from flows.runner import records
from infra.errors import BadConfiguration
from infra.site import Site, open_store
from infra.store.manifest import Manifest
from infra.tracking.registry import resolve
from tasks.evaluation.compare import Comparison, compare

SCORE_KEY_TAG = "key.score."


@dataclass(frozen=True)
class ScoredSystem:
    """A name to show, and the manifest of its scores by set."""

    name: str
    scores: dict[str, Manifest]


def find_system(words: str, site: Site) -> ScoredSystem:
    """The system that the words mean. Raises BadConfiguration where there is none, or its scores are gone."""
    if "@" in words or "/" in words:
        version = resolve(site.tracking, words)
        keys = {
            tag.removeprefix(SCORE_KEY_TAG): key for tag, key in version.tags.items() if tag.startswith(SCORE_KEY_TAG)
        }
        name = f"{version.name}/{version.version}"
    else:
        open_store(site).receive(records.record_folder(words))
        keys, name = records.last_keys(site.root, words, "score"), words
    if not keys:
        raise BadConfiguration(f"{words!r} has no scores here: run it, or name a version as in demo@champion")
    store = open_store(site)
    scores = {item: store.manifest("score", key) for item, key in keys.items()}
    gone = [f"{store.folder('score', keys[item])}" for item, manifest in scores.items() if manifest is None]
    if gone:
        raise BadConfiguration(f"{words!r} was scored in {gone[0]}, but that artifact is not there")
    return ScoredSystem(name, {item: manifest for item, manifest in scores.items() if manifest})


def compare_systems(a: ScoredSystem, b: ScoredSystem, site: Site) -> list[Comparison]:
    """Every set that both have, in A's order. Raises BadConfiguration where there is none."""
    common = [name for name in a.scores if name in b.scores]
    if not common:
        theirs = f"{a.name} has {', '.join(a.scores)}, {b.name} has {', '.join(b.scores)}"
        raise BadConfiguration(f"no set was scored for both: {theirs}")
    store = open_store(site)
    found = []
    for name in common:
        tables = [
            pl.read_parquet(store.artifact(system.scores[name]).path() / "sentences.parquet") for system in (a, b)
        ]
        language = a.scores[name].arguments.get("language", "en")
        found.append(compare(name, tables[0], tables[1], language))
    return found
