"""Model cards of registered versions, from tags, manifests and scored sentences. Writes nothing."""

from collections.abc import Mapping
from pathlib import Path

from infra.errors import Fault
from infra.store.manifest import Manifest
from infra.store.store import Store
from infra.tracking.model_version import Version
from tasks.registration.model_card import SENTENCES, ModelCard, model_card


def version_card(version: Version, manifests: Mapping[str, Manifest], store: Store) -> ModelCard:
    """The card of a registered version; its scores are those of its tags, which outlive the artifacts."""
    return model_card(
        version.label,
        version.tags,
        manifests,
        lambda name: artifact_file(store, manifests.get(f"score.{name}"), SENTENCES),
    )


def artifact_file(store: Store, manifest: Manifest | None, name: str) -> Path | None:
    """A file of an artifact, which a bucket's store downloads; None where it is not there."""
    if manifest is None or name not in manifest.files:
        return None
    try:
        file = store.path_as_it_is(manifest) / name
    except Fault:
        return None
    return file if file.is_file() else None
