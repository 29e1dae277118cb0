"""Hit or miss, and why: the manifest decides.

A stage is a hit when its manifest exists, each input has the content it had when the stage ran, every file has its
checksum, and what the stage did outside its folder is still valid.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from infra.site import Site
from infra.store.local import Artifact, Store
from infra.store.manifest import Manifest
from tasks.engine.stage import StageCall


@dataclass(frozen=True)
class CacheLookup:
    """Whether a call is a hit, and in a few words why not."""

    artifact: Artifact | None = None
    """The artifact of a hit."""
    why: str = ""
    manifest: Manifest | None = None
    """What the store has under the key, hit or miss."""
    damaged: bool = False
    forced: bool = False

    @property
    def hit(self) -> bool:
        return self.artifact is not None


NO_LOOKUPS: Mapping[str, CacheLookup] = MappingProxyType({})
"""By key."""


def look_up(store: Store, site: Site, call: StageCall, attempt: str = "") -> CacheLookup:
    """Ask the store for the artifact of ``call``; with an ``attempt``, only what that attempt made is a hit.

    Makes one list request where the store is a bucket.
    """
    lookup = _look_up(store_for(store, site, call), site, call)
    if attempt and not (lookup.manifest and lookup.manifest.made.get("attempt") == attempt):
        return replace(lookup, artifact=None, why="forced", forced=True)
    return lookup


def _look_up(store: Store, site: Site, call: StageCall) -> CacheLookup:
    manifest = store.manifest(call.stage.name, call.key)
    if manifest is None:
        return CacheLookup(why="not made yet")
    if changed := changed_input(call, manifest):
        return CacheLookup(why=changed, manifest=manifest)
    if damage := store.damage(manifest):
        return CacheLookup(why=damage, manifest=manifest, damaged=True)
    artifact = store.artifact(manifest)
    if not call.stage.still_valid(artifact, site):
        return CacheLookup(why="what it registered is gone", manifest=manifest)
    return CacheLookup(artifact, manifest=manifest)


def changed_input(call: StageCall, manifest: Manifest) -> str:
    """The first input whose content differs from the one that ``manifest`` records, in words; "" for none."""
    for name, content in call.input_contents.items():
        if manifest.inputs.get(name) != content:
            return f"{name.partition('/')[0]} has other content than when this was made"
    return ""


def store_for(store: Store, site: Site, call: StageCall) -> Store:
    """The store of the call's artifact: this machine's, for a stage that wrote to an MLflow of this machine."""
    return store.local() if call.stage.has_side_effects and not site.shares_tracking else store
