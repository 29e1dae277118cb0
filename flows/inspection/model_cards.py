"""Model cards of registered versions and of runs, from tags, manifests and scored sentences. Writes nothing."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.runner.artifact_names import is_version, stage_manifests
from infra.errors import Fault
from infra.site import Site, open_store
from infra.store.local import Store
from infra.store.manifest import Manifest
from infra.store.s3 import S3Store
from infra.tracking.model_version import Version
from infra.tracking.registry import resolve
from model.lazy_import import lazy_import
from tasks.registration.differences import version_lineage
from tasks.registration.lineage import lineage
from tasks.registration.model_card import Examples, ModelCard, model_card
from tasks.reporting.examples import translation_examples

if TYPE_CHECKING:
    import polars as pl
else:
    pl = lazy_import("polars")

EXAMPLES_OF_EACH_KIND = 3
LOAD = """repro translate --model {quoted} < in.txt > out.txt

import mlflow
model = mlflow.pyfunc.load_model({address})
model.predict(["A dog runs."])
"""


def find_card(name: str, site: Site) -> ModelCard:
    """The card of a version or of a run's newest scores. Raises BadConfiguration if there is none."""
    store = open_store(site)
    if is_version(name):
        version = resolve(site.tracking, name)
        return version_card(version, version_lineage(store.manifest, version.tags), store)
    scores = stage_manifests(store, name, "score")
    manifests = lineage(store.artifact(each) for each in scores.values())
    facts = {item: manifest.facts for item, manifest in scores.items()}
    return _card(name, facts, _dev_set(manifests), manifests, "", store)


def version_card(version: Version, manifests: Mapping[str, Manifest], store: Store) -> ModelCard:
    """The card of a registered version; its scores are those of its tags, which outlive the artifacts."""
    facts = {name: _facts(version.tags, f"{name}.") for name in version.bleu}
    label = f"{version.name}/{version.version}"
    load = LOAD.format(quoted=shlex.quote(label), address=json.dumps(f"models:/{label}"))
    return _card(label, facts, version.dev, manifests, load, store)


def artifact_file(store: Store, manifest: Manifest | None, name: str) -> Path | None:
    """A file of an artifact, which a bucket's store downloads; None where it is not there."""
    if manifest is None or name not in manifest.files:
        return None
    if not isinstance(store, S3Store):  # not ``path()``, which moves a damaged artifact away
        file = store.folder(manifest.stage, manifest.key) / name
        return file if file.is_file() else None
    try:
        return store.artifact(manifest).path() / name
    except Fault:
        return None


def _card(
    name: str,
    scores: Mapping[str, Mapping[str, Any]],
    dev: str,
    manifests: Mapping[str, Manifest],
    how_to_load: str,
    store: Store,
) -> ModelCard:
    """The card with examples of the first set that no choice was made on, or else of the dev set."""
    examples_of = next((each for each in scores if each != dev), dev)
    file = artifact_file(store, manifests.get(f"score.{examples_of}"), "sentences.parquet")
    return model_card(name, scores, dev, manifests, how_to_load, examples_of, _examples(file))


def _examples(file: Path | None) -> Examples:
    try:
        found = translation_examples(pl.read_parquet(file)) if file else {}
    except (OSError, pl.exceptions.PolarsError):  # a damaged file costs the examples, not the card
        return {}
    return {kind: rows[:EXAMPLES_OF_EACH_KIND] for kind, rows in found.items()}


def _facts(tags: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {tag.removeprefix(prefix): value for tag, value in tags.items() if tag.startswith(prefix)}


def _dev_set(manifests: Mapping[str, Manifest]) -> str:
    """The set that a training was checked on; "" where its artifact was removed."""
    key = manifests["train"].arguments["dev"]["key"] if "train" in manifests else ""
    shards = (each for each in manifests.values() if each.stage == "shard" and each.key == key)
    return next((each.item for each in shards), "")
