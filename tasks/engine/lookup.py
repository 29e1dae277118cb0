"""Look up a call in the store: hit or miss, and the reason for a miss.

A call is a hit if its manifest exists, each input has the content it had when the stage ran, every file has its
checksum, and the stage's effects outside its folder still exist. A hit by other code or libraries than the present ones
says so; where the site is ``strict``, it is a miss.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from infra.site import Site
from infra.store.manifest import Manifest, is_of_attempt
from infra.store.store import Artifact, Store
from tasks.engine.stage import StageCall
from tasks.engine.stage_code import StageCode, stage_code


@dataclass(frozen=True)
class CacheLookup:
    """Whether a call is a hit, and the reason if not."""

    artifact: Artifact | None = None
    """The artifact of a hit."""
    why: str = ""
    manifest: Manifest | None = None
    """The manifest that the store has under the key, hit or miss."""
    damaged: bool = False
    must_run: bool = False
    """Whether the stage runs even if its inputs turn out as they were."""
    stale: str = ""
    """For a hit: the code or the libraries that changed since the artifact was made."""

    @property
    def hit(self) -> bool:
        return self.artifact is not None

    @property
    def note(self) -> str:
        """For a hit: that it was adopted, or what changed since it was made."""
        return (self.manifest.adopted if self.manifest else "") or self.stale

    @property
    def remedy(self) -> str:
        """For a miss of what another worker just made: what to do so that this worker takes it."""
        if self.must_run:
            return "REPRO_STRICT is set here: give both workers the same version of this project and its libraries"
        return "run again" if self.manifest or self.damaged else "set the same REPRO_ROOT for both workers"


NO_LOOKUPS: Mapping[str, CacheLookup] = MappingProxyType({})
"""Lookups by key."""


def look_up(store: Store, site: Site, call: StageCall, attempt: str = "") -> CacheLookup:
    """Look up the artifact of ``call``; with an ``attempt``, only an artifact of that attempt is a hit.

    Makes one list request if the store is a bucket.
    """
    lookup = _look_up(store_for(store, site, call), site, call)
    if attempt and not (lookup.manifest and is_of_attempt(lookup.manifest, attempt)):
        return replace(lookup, artifact=None, why="forced", must_run=True)
    return lookup


def _look_up(store: Store, site: Site, call: StageCall) -> CacheLookup:
    manifest = store.find(call.stage.name, call.key)
    if manifest is None and store.has(call.stage.name, call.key):
        return CacheLookup(why="its manifest.json is missing, damaged or another artifact's", damaged=True)
    if manifest is None:
        return CacheLookup(why="not made yet")
    stale = code_of(store, call).change_since(manifest.made)
    # No code made what was adopted, so none can have changed.
    if site.strict and not manifest.adopted and (stale or "modules" not in manifest.made):
        why = stale or "the artifact does not say by which code it was made"
        return CacheLookup(why=why, manifest=manifest, must_run=True)
    if changed := changed_input(call, manifest):
        return CacheLookup(why=changed, manifest=manifest)
    if damage := store.damage(manifest):
        return CacheLookup(why=damage, manifest=manifest, damaged=True)
    artifact = store.artifact(manifest)
    if not call.stage.still_valid(artifact, site):
        return CacheLookup(why="the version that it registered is gone or damaged", manifest=manifest)
    return CacheLookup(artifact, manifest=manifest, stale=stale)


def code_of(store: Store, call: StageCall) -> StageCode:
    """The present code and libraries of the call's stage."""
    return stage_code(call.stage.body.__module__, store.root / "stamps" / "code.json")


def changed_input(call: StageCall, manifest: Manifest) -> str:
    """A message that names the first input whose content differs from ``manifest``'s record; "" if there is none."""
    if manifest.adopted:  # it was not made from the inputs
        return ""
    for name, content in call.input_contents.items():
        if manifest.inputs.get(name) != content:
            return f"the content of {name.partition('/')[0]} has changed"
    return ""


def store_for(store: Store, site: Site, call: StageCall) -> Store:
    """The store for the call's artifact: the local one for a stage that writes to a local MLflow."""
    return store.local() if call.stage.has_side_effects and not site.shares_tracking else store
