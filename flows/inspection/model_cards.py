"""Makes model cards of registered versions from tags, manifests and scored sentences. Writes nothing."""

from collections.abc import Mapping
from pathlib import Path

from infra.errors import Fault
from infra.store.manifest import Manifest
from infra.store.store import Store
from infra.tracking.model_version import Version
from tasks.registration.model_card import SENTENCES, ModelCard, model_card


def version_card(version: Version, manifests: Mapping[str, Manifest], store: Store) -> ModelCard:
    """Make the card of a registered version, with the scores in its tags, since artifacts may be deleted."""
    return model_card(
        version.label,
        version.tags,
        manifests,
        lambda name: artifact_file(store, manifests.get(f"score.{name}"), SENTENCES),
    )


def artifact_file(store: Store, manifest: Manifest | None, name: str) -> Path | None:
    """Find a file of an artifact, downloaded from a bucket; None if it is missing."""
    if manifest is None or name not in manifest.files:
        return None
    try:
        file = store.path_as_it_is(manifest) / name
    except Fault:
        return None
    return file if file.is_file() else None
