"""Reads and compares scores, sentences and curves of runs and model versions.

``multi30k-ende@champion`` and ``multi30k-ende/3`` name registered versions, ``multi30k-ende/score/val`` the scores of
one set, ``system:google`` translations by another system (``flows.runner.systems``). Any other name is a run; its
newest finished record counts (``flows.runner.named_runs``).
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from polars.selectors import by_name, numeric

from flows.runner.artifact_names import existing_manifest, is_version, model_manifests
from flows.runner.find_run import find_version, short_name
from flows.runner.systems import SYSTEM, system_scores
from infra.errors import BadConfiguration
from infra.site import Site, open_store
from infra.store.manifest import Manifest
from infra.store.store import Artifact, Store
from tasks.evaluation.system_comparison import Difference, compare
from tasks.evaluation.training_log import metric_rows
from tasks.evaluation.translation_metrics import score_metrics
from tasks.registration.lineage import keys_of, lineage, version_lineage

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScoredSystem:
    """A name to display, the manifests of its scores by set, and of all their inputs (none for ``system:google``)."""

    name: str
    scores: Mapping[str, Manifest]
    lineage: Mapping[str, Manifest]


def find_system(name: str, site: Site, overrides: Sequence[str] = ()) -> ScoredSystem:
    """Find the run, version or other system of this name. Raises BadConfiguration if it or its scores do not exist."""
    if " --set " in name:
        run = name.partition(" --set ")[0]
        raise BadConfiguration(f"{name!r} has settings, allowed is its version such as {run}/2 (see `repro models`)")
    name = short_name(name)
    if overrides and (is_version(name) or name.startswith(SYSTEM)):
        raise BadConfiguration(f"{name!r} is named with overrides, allowed are overrides of a run")
    store = open_store(site)
    if name.startswith(SYSTEM):
        return ScoredSystem(name, {item: each.score for item, each in system_scores(store, name).items()}, {})
    if is_version(name):
        version = find_version(name, site)
        scored = [(place.partition("."), key) for place, key in keys_of(version.tags).items()]
        scores = {item: existing_manifest(store, name, s, key) for (s, _, item), key in scored if s == "score"}
        if not scores:
            raise BadConfiguration(f"{version.label} has no scores on record")
        return ScoredSystem(version.label, scores, version_lineage(store.find, version.tags))
    return system_of(name, model_manifests(store, name, "score", overrides), store)


def training_size(made: Mapping[str, Manifest]) -> str:
    """Describe the size of a training: ``120 updates, 3.5 epochs, 583 pairs``; "" if there is none."""
    if "train" not in made:
        return ""
    read = next((made[stage].facts for stage in ("mix", "extract_best", "clean") if stage in made), {})
    known = {**made["train"].arguments["training"], **made["train"].facts, "pairs": read.get("pairs")}
    return ", ".join(f"{round(known[name], 1):,} {name}" for name in ("updates", "epochs", "pairs") if known.get(name))


def system_of(name: str, scores: Mapping[str, Manifest | None], store: Store) -> ScoredSystem:
    """Make a system with these scores by set, without removed ones."""
    found = {item: score for item, score in scores.items() if score}
    return ScoredSystem(name, found, lineage({item: store.artifact(score) for item, score in found.items()}))


def common_sets(first: ScoredSystem, *others: ScoredSystem) -> list[str]:
    """List the sets that all have with equal references, in the first's order. Raises BadConfiguration if none."""
    every = (first, *others)
    shared = [name for name in first.scores if all(name in each.scores for each in others)]
    common = []
    for name in shared:
        own = first.scores[name].facts["references_sha256"]
        other = next((each for each in others if each.scores[name].facts["references_sha256"] != own), None)
        if other:
            log.warning("%s is left out: %s has other sentences than %s", name, other.name, first.name)
        else:
            common.append(name)
    if not common:
        sets = ", ".join(f"{each.name} has {', '.join(each.scores)}" for each in every)
        raise BadConfiguration(f"no set with the same sentences was scored for all: {sets}")
    return common


def read_sentences(score: Manifest, site: Site) -> pl.DataFrame:
    """Read the sentences of one set: ``pair_id``, ``source``, ``reference``, ``hypothesis``, ``bleu``, ``chrf``."""
    return pl.read_parquet(open_store(site).artifact(score).path() / "sentences.parquet")


def compare_systems(a: ScoredSystem, b: ScoredSystem, site: Site) -> dict[str, list[Difference]]:
    """Compare every set that both systems have, in the order of ``a``. Raises BadConfiguration if there is none."""
    found = {}
    for name in common_sets(a, b):
        first, second = (read_sentences(each.scores[name], site) for each in (a, b))
        found[name] = compare(name, first, second, score_metrics(a.scores[name].arguments.get("language", "en")))
    return found


def find_training(name: str, site: Site, overrides: Sequence[str] = ()) -> Artifact:
    """Find the training of ``demo@champion``, ``demo`` or ``demo/train/seed-2``. Raises BadConfiguration."""
    store = open_store(site)
    if is_version(name) or name.startswith(SYSTEM):
        made = find_system(name, site, overrides).lineage
        if "train" not in made:
            raise BadConfiguration(f"{name!r} has no training here, allowed is a run or a version that kept its own")
        return store.artifact(made["train"])
    trainings = model_manifests(store, name, "train", overrides)
    return store.artifact(trainings.get("") or next(iter(trainings.values())))


def training_table(metrics: Path) -> pl.DataFrame:
    """Read a row per update in ``metrics.jsonl``, with a column per metric: its last value, null if not measured."""
    table = pl.from_dicts(metric_rows(metrics), infer_schema_length=None)
    measured = numeric() - by_name("done", "total", require_all=False)
    return table.select(pl.col("done").alias("update"), measured.cast(pl.Float64))
