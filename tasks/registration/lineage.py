"""The lineage of artifacts, read from their manifests: what a model was trained on and how its dev set was decoded."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from infra.store.manifest import Manifest
from infra.store.store import Artifact, Store
from infra.tracking.model_version import tags_below
from model.config import Decoding, from_json
from tasks.evaluation.seed_spread import is_own

KEY_TAG = "key."
"""The tags of a version that name the artifacts of its lineage: ``key.train``, ``key.score.test``."""


def lineage(scores: Mapping[str, Artifact], others: Iterable[Artifact] = ()) -> dict[str, Manifest]:
    """Manifests of scores by item, of others, and of all their inputs, by ``stage`` or ``stage.item``; no deleted ones.

    A name says what the artifact is here. Its manifest has the item of the run that made it first: the training of
    seed 2 may have been made as ``train seed-2`` of an ensemble.
    """
    names: dict[tuple[str, str], str] = {}
    for item, score in scores.items():
        translated = score.store.given(score.manifest, "hypotheses")
        weights = score.store.given(translated, "weights") if is_own(item) else None
        trained = score.store.given(weights, "run")
        roles = {f"score.{item}": score.manifest, f"translate.{item}": translated, "average": weights, "train": trained}
        names |= {(made.stage, made.key): name for name, made in roles.items() if made}
    found: dict[str, Manifest] = {}
    for artifact in (*scores.values(), *others):
        _collect_lineage(artifact.store, artifact.stage, artifact.key, names, found)
    return found


def _collect_lineage(
    store: Store, stage: str, key: str, names: Mapping[tuple[str, str], str], found: dict[str, Manifest]
) -> None:
    manifest = store.find(stage, key)
    if manifest is None:
        return
    first = f"{stage}.{manifest.item}" if manifest.item else stage
    name = names.get((stage, key), first)
    if name in found or (name in names.values() and (stage, key) not in names):
        return
    found[name] = manifest
    for made_from in manifest.inputs:
        input_stage, _, input_key = made_from.partition("/")
        _collect_lineage(store, input_stage, input_key, names, found)


def version_lineage(manifest: Callable[[str, str], Manifest | None], tags: Mapping[str, str]) -> dict[str, Manifest]:
    """The manifests of the artifacts that a version's tags name, without removed ones."""
    manifests = {name: manifest(name.partition(".")[0], key) for name, key in keys_of(tags).items()}
    return {name: manifest for name, manifest in manifests.items() if manifest}


def keys_of(tags: Mapping[str, str]) -> dict[str, str]:
    """The keys of the artifacts that a version's tags name, by ``train``, ``score.test``."""
    return tags_below(tags, KEY_TAG)


def training_text(weights: Artifact) -> dict[str, int | str]:
    """What a translator needs of the training text: its languages, and ``max_pieces``, the longest side of a pair.

    A field whose manifest was deleted is missing.
    """
    fields: dict[str, Any] = {}
    manifest = weights.manifest
    # Follow these arguments, not all inputs: a training with initial weights has another run's text as an input too.
    # ``pairs`` twice: the pairs of the shards may be a mixture, which has cleaned pairs as its own ``pairs``.
    for argument in ("run", "shards", "pairs", "pairs"):
        manifest = weights.store.given(manifest, argument)
        if manifest:
            fields |= {**manifest.arguments.get("corpus", {}), **manifest.arguments.get("sharding", {})}
    return {name: fields[name] for name in ("source_language", "target_language", "max_pieces") if name in fields}


def dev_decoding(manifests: Mapping[str, Manifest], dev: str) -> Decoding:
    """The decoding of the dev set, which is also the version's default."""
    arguments = manifests[f"translate.{dev}"].arguments["decoding"] if f"translate.{dev}" in manifests else {}
    return from_json(Decoding, arguments)
