"""The text that a stage reads, as datasets of MLflow: name, digest, source and number of pairs.

MLflow shows them with the run, and links scores of a model to the set that they were measured on.
"""

from collections.abc import Iterator
from typing import Any

from infra.store.manifest import Manifest
from infra.store.store import Artifact
from infra.tracking.mlflow_runs import TrackedDataset
from infra.tracking.tracker import Tracker
from tasks.engine.stage import StageCall

READERS = ("train", "score", "register")
"""Stages whose text is named; that of the others is part of theirs."""


def log_datasets(tracker: Tracker, run_id: str, call: StageCall) -> None:
    """Name the text of a stage in its run, "" for none, and in the parent."""
    # MLflow's list of runs shows the first one.
    for data in sorted(datasets(call), key=lambda data: data.context != "train"):
        tracker.log_input(run_id, data)


def datasets(call: StageCall) -> Iterator[TrackedDataset]:
    """The text that the call reads, the corpus first; none whose manifest was removed."""
    for artifact in call.inputs if call.stage.name in READERS else ():
        text = _text(artifact)
        if text is None:
            continue
        if text.stage == "prepare_sets":
            dev = call.arguments.get("dev")  # a training has the artifact, a registration the name, a score neither
            context = "dev" if dev in (text.item, artifact) else "test" if dev else "evaluation"
            yield _dataset(context, text.item, text, text.arguments)
        elif text.facts.get("pairs"):
            corpus = _corpus(artifact, text)
            name = corpus.get("name", "") if text.stage == "clean" else f"{corpus.get('name', '')} {text.stage}"
            yield _dataset("train", name, text, corpus)


def _dataset(context: str, name: str, text: Manifest, said: Any) -> TrackedDataset:
    counts = {fact: text.facts[fact] for fact in ("pairs", "read", "rejected") if fact in text.facts}
    files = sorted({f"{path}" for path in _paths(said)})
    return TrackedDataset(context, name, text.content, {"uri": f"{text.stage}/{text.key}", "files": files}, counts)


def _text(artifact: Artifact) -> Manifest | None:
    """The manifest of the pairs that an artifact holds, or that its shards were made of; None for other artifacts."""
    manifest = artifact.manifest
    if manifest and manifest.stage == "shard":
        manifest = artifact.store.given(manifest, "pairs")
    return manifest if manifest and manifest.stage in ("prepare_sets", "clean", "mix", "extract_best") else None


def _corpus(artifact: Artifact, text: Manifest) -> Any:
    """The corpus as the cleaning names it; a mixture was made of cleaned pairs."""
    clean = text if text.stage == "clean" else artifact.store.given(text, "pairs")
    return clean.arguments.get("corpus", {}) if clean else {}


def _paths(value: Any) -> Iterator[str]:
    """The paths of all files that a canonical value names."""
    if isinstance(value, dict):
        if value.get("class") == "File":
            yield value["path"]
        for inner in value.values():
            yield from _paths(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _paths(inner)
