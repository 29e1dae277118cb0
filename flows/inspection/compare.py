"""Find the score artifacts of two runs or model versions, and compare them.

``multi30k-ende@champion`` and ``multi30k-ende/3`` name versions of the registry, ``multi30k-ende/score/val`` the scores
of one set; any other name is a run, whose newest record with scores counts.
"""

from dataclasses import dataclass

import polars as pl

from flows.runner.artifact_names import existing_manifest, is_version, stage_manifests
from infra.errors import BadConfiguration
from infra.site import Site, open_store
from infra.store.manifest import Manifest
from infra.tracking.registry import resolve
from tasks.evaluation.collapse import LayerCurves, layer_curves
from tasks.evaluation.compare import Comparison, compare
from tasks.registration.lineage import lineage

SCORE_KEY_TAG = "key.score."


@dataclass(frozen=True)
class ScoredSystem:
    """A name to display, and the manifest of the scores by set."""

    name: str
    scores: dict[str, Manifest]


def find_system(name: str, site: Site) -> ScoredSystem:
    """The run or version of this name. Raises BadConfiguration if it does not exist or its scores are missing."""
    store = open_store(site)
    if is_version(name):
        version = resolve(site.tracking, name)
        keys = {tag.removeprefix(SCORE_KEY_TAG): k for tag, k in version.tags.items() if tag.startswith(SCORE_KEY_TAG)}
        scores = {item: existing_manifest(store, name, "score", key) for item, key in keys.items()}
        return ScoredSystem(f"{version.name}/{version.version}", scores)
    return ScoredSystem(name, stage_manifests(store, name, "score"))


def collapse_curves(system: ScoredSystem, site: Site) -> LayerCurves:
    """The signs of collapse of the system's training, by layer; empty if it was deleted or recorded none."""
    store = open_store(site)
    training = lineage(store.artifact(score) for score in system.scores.values()).get("train")
    metrics = store.artifact(training).path() / "metrics.jsonl" if training else None
    return layer_curves(metrics) if metrics and metrics.exists() else {}


def compare_systems(a: ScoredSystem, b: ScoredSystem, site: Site) -> list[Comparison]:
    """Compare every set that both systems have, in the order of ``a``. Raises BadConfiguration if there is none."""
    common = [name for name in a.scores if name in b.scores]
    if not common:
        sets = f"{a.name} has {', '.join(a.scores)}, {b.name} has {', '.join(b.scores)}"
        raise BadConfiguration(f"no set was scored for both: {sets}")
    store = open_store(site)

    def sentences(score: Manifest) -> pl.DataFrame:
        return pl.read_parquet(store.artifact(score).path() / "sentences.parquet")

    return [
        compare(
            name,
            sentences(a.scores[name]),
            sentences(b.scores[name]),
            a.scores[name].arguments.get("language", "en"),
        )
        for name in common
    ]
