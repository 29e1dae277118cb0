"""Model cards of registered versions and of runs, from tags, manifests and scored sentences. Writes nothing."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from flows.runner.artifact_names import is_version, model_manifests
from infra.errors import Fault
from infra.site import Site, open_store
from infra.store.manifest import Manifest
from infra.store.store import Store
from infra.tracking.model_version import Version
from infra.tracking.registry import resolve
from tasks.registration.differences import version_lineage
from tasks.registration.lineage import lineage
from tasks.registration.model_card import SENTENCES, ModelCard, card_from_tags, example_set, model_card, read_examples


def find_card(name: str, site: Site, overrides: Sequence[str] = ()) -> ModelCard:
    """The card of a version or of a run's newest scores. Raises BadConfiguration if there is none."""
    store = open_store(site)
    if is_version(name):
        version = resolve(site.tracking, name)
        return version_card(version, version_lineage(store.find, version.tags), store)
    scores = model_manifests(store, name, "score", overrides)
    manifests = lineage(store.artifact(each) for each in scores.values())
    facts = {item: manifest.facts for item, manifest in scores.items()}
    dev = _dev_set(manifests)
    examples_of = example_set(facts, dev)
    examples = read_examples(artifact_file(store, manifests.get(f"score.{examples_of}"), SENTENCES))
    return model_card(name, facts, dev, manifests, "", examples_of, examples)


def version_card(version: Version, manifests: Mapping[str, Manifest], store: Store) -> ModelCard:
    """The card of a registered version; its scores are those of its tags, which outlive the artifacts."""
    return card_from_tags(
        f"{version.name}/{version.version}",
        version.tags,
        manifests,
        lambda each: artifact_file(store, manifests.get(f"score.{each}"), SENTENCES),
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


def _dev_set(manifests: Mapping[str, Manifest]) -> str:
    """The set that a training was checked on; "" where its artifact was removed."""
    key = manifests["train"].arguments["dev"]["key"] if "train" in manifests else ""
    shards = (each for each in manifests.values() if each.stage == "shard" and each.key == key)
    return next((each.item for each in shards), "")
