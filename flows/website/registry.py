"""Reads the registry for the site: models, and each version with its scores, settings and training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import groupby
from typing import Any

from infra.guards.path_names import file_name
from infra.site import Site, open_store
from infra.tracking.model_version import PREFERRED, Promotion, Version, finite, history
from infra.tracking.registry import versions
from tasks.registration.differences import Lineage, settings_of
from tasks.registration.lineage import version_lineage
from tasks.registration.model_card import scores_in_tags

SETTING_STAGES = ("clean", "learn_bpe", "shard.train", "train", "average")
"""Stages whose arguments are a version's settings, beside ``translate`` of its dev set."""
MANIFESTS_IN_MEMORY = 4096
"""Size of the cache of manifests: most roots are read once, and a large root does not fill the memory."""


@dataclass(frozen=True)
class Score:
    """A score, with its 95 % confidence interval if computed."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class VersionEntry:
    """A version, with facts from the manifests of its lineage; mappings are empty if these were deleted."""

    version: Version
    settings: Mapping[str, str]
    """Values of the run's fields, by their names in ``--set``."""
    training: Mapping[str, Any]
    """Facts of the stage ``train``."""
    made: Mapping[str, Any]
    """Time, machine, code and libraries of the training."""
    read_lineage: Callable[[], Lineage]
    """Reads the lineage of the version."""

    @property
    def label(self) -> str:
        return self.version.label

    @property
    def page(self) -> str:
        return f"versions/{file_name(self.version.name)}/{self.version.version}.html"

    @property
    def commit(self) -> str:
        return self.version.tags.get("git_commit", "")

    @cached_property
    def scores(self) -> Mapping[str, Mapping[str, Score]]:
        """Every measure of every set, the dev set first."""
        facts = scores_in_tags(self.version.tags)
        return {name: _scores(facts[name]) for name in self.version.bleu}

    def references(self, name: str) -> str:
        """Return the digest of a set's references; scores with different references are not comparable."""
        return self.version.tags.get(f"{name}.references_sha256", "")


@dataclass(frozen=True)
class ModelEntry:
    """A model with its versions, the newest first."""

    name: str
    versions: Sequence[VersionEntry]

    @property
    def page(self) -> str:
        return f"models/{file_name(self.name)}.html"

    @property
    def preferred(self) -> VersionEntry:
        """The champion, else the candidate, else the newest version."""
        aliased = (entry for alias in PREFERRED for entry in self.versions if alias in entry.version.aliases)
        return next(aliased, self.versions[0])

    @cached_property
    def moves(self) -> Sequence[Promotion]:
        return history(entry.version for entry in self.versions)

    @cached_property
    def varying(self) -> Sequence[str]:
        """Names of the settings that differ between versions, those with the fewest values first."""
        known = [entry.settings for entry in self.versions if entry.settings]
        names = dict.fromkeys(name for settings in known for name in settings)
        values = {name: len({settings.get(name) for settings in known}) for name in names}
        return sorted((name for name in names if values[name] > 1), key=values.__getitem__)


def read_registry(site: Site) -> list[ModelEntry]:
    """Read all models, sorted by name; empty if none is registered."""
    found = versions(site.registry)
    store = open_store(site)
    manifest = lru_cache(MANIFESTS_IN_MEMORY)(store.find)

    def entry(version: Version) -> VersionEntry:
        read_lineage = partial(version_lineage, manifest, version.tags)
        lineage = read_lineage()
        stages = (*SETTING_STAGES, f"translate.{version.dev}")
        train = lineage.get("train")
        return VersionEntry(
            version,
            settings_of({stage: lineage[stage] for stage in stages if stage in lineage}),
            train.facts if train else {},
            train.made if train else {},
            read_lineage,
        )

    return [ModelEntry(name, [*map(entry, each)]) for name, each in groupby(found, lambda version: version.name)]


def _scores(facts: Mapping[str, str]) -> dict[str, Score]:
    numbers = {name: value for name, text in facts.items() if "." not in name and (value := finite(text)) is not None}
    return {
        name: Score(value, numbers.get(f"{name}_low"), numbers.get(f"{name}_high"))
        for name, value in numbers.items()
        if name != "sentences" and not name.endswith(("_low", "_high"))
    }
