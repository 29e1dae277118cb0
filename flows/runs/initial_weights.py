"""Finds initial weights and vocabulary for a training whose ``training.start`` names a registered version.

A version was registered from sealed artifacts. Those artifacts become inputs of the run, so that its keys depend on the
version's content and not on its name. This module only reads, so a plan may call it.
"""

import json
from dataclasses import asdict, dataclass

from flows.runs import Run
from infra.errors import BadConfiguration
from infra.site import Site
from infra.store.store import Artifact, Store
from infra.tracking.model_version import Version
from infra.tracking.registry import resolve
from model.config import Model, from_json

FIELDS_THAT_MAY_DIFFER = ("p_drop", "p_drop_attention", "p_drop_relu", "init")
"""Fields of a model that may differ from the version's: they do not change the meaning of its weights."""


@dataclass(frozen=True)
class InitialWeights:
    """A version and its source artifacts, or a training to continue. Each tuple is empty, or holds one artifact."""

    version: str
    """``name/number``, or ``RUN/train``."""
    weights: tuple[Artifact, ...] = ()
    vocabulary: tuple[Artifact, ...] = ()
    """The vocabulary that the weights were trained with."""
    continued: tuple[Artifact, ...] = ()


def initial_weights_of(run: Run, site: Site, store: Store) -> InitialWeights | None:
    """The initial weights of the run, None if they are drawn at random.

    Raises BadConfiguration for a version that is unknown, not in this store, or of another shape.
    """
    words = run.training.start
    if not words:
        return None
    version = resolve(site.tracking, words)
    weights = _source_artifact(version, "average", store)
    vocabulary = _source_artifact(version, "learn_bpe", store)
    theirs = from_json(Model, json.loads((weights.path() / "model.json").read_text())["model"])
    for field, value in asdict(theirs).items():
        own = getattr(run.model, field)
        counts = field not in FIELDS_THAT_MAY_DIFFER and (field != "max_positions" or run.model.learns_positions)
        if counts and own != value:
            difference = f"model.{field} of {version.label} is {value!r}, and of this run {own!r}"
            raise BadConfiguration(f"training.start is {words!r}, allowed is a model of the same shape: {difference}")
    return InitialWeights(version.label, (weights,), (vocabulary,))


def _source_artifact(version: Version, stage: str, store: Store) -> Artifact:
    """Find the artifact of ``stage`` that the version was registered from; its content must not have changed."""
    name = version.label
    key, content = (version.tags.get(f"{tag}.{stage}", "") for tag in ("key", "digest"))
    if not key or not content:
        raise BadConfiguration(f"training.start: {name} does not say from which {stage} it was registered")
    there = "is not there"
    if manifest := store.find(stage, key):
        is_other = manifest.content != content
        there = "was made again, with other content" if is_other else store.damage(manifest)
        if not there:
            return store.artifact(manifest)
    place = store.folder(stage, key)
    raise BadConfiguration(f"training.start: {name} was registered from {place}, but that artifact {there}")
