"""Look up a call in the store: hit or miss, and the reason for a miss.

A call is a hit if its manifest exists, each input has the content it had when the stage ran, every file has its
checksum, and the stage's effects outside its folder still exist. If other code or libraries made the artifact,
the hit names the change; on a ``strict`` site the call is a miss.
``flows.views.stage_words`` describes hits and misses in words.
"""

from dataclasses import dataclass
from enum import StrEnum

from infra.site import Site
from infra.store.manifest import Manifest, is_of_attempt
from infra.store.store import Artifact, Store
from tasks.engine.stage import StageCall
from tasks.engine.stage_code import UNCHANGED, CodeChange, StageCode, stage_code


class MissReason(StrEnum):
    """Why a call is not a hit."""

    NOT_MADE = "not made yet"
    FORCED = "forced"
    INPUT_CHANGED = "input changed"
    CODE_CHANGED = "code changed"
    CODE_UNKNOWN = "the artifact does not say by which code it was made"
    DAMAGED = "damaged"
    EFFECTS_GONE = "the version that it registered is gone or damaged"


@dataclass(frozen=True)
class Hit:
    """The artifact of a call, and the code or libraries that changed since it was made."""

    artifact: Artifact
    change: CodeChange = UNCHANGED
    is_new: bool = False
    """Whether this run made the artifact."""


@dataclass(frozen=True)
class Miss:
    """Why a call has no artifact that it can use."""

    reason: MissReason
    manifest: Manifest | None = None
    """The manifest that the store has under the key."""
    detail: str = ""
    """The stage whose output changed, or what is damaged."""
    change: CodeChange = UNCHANGED

    def __str__(self) -> str:
        match self.reason:
            case MissReason.DAMAGED:
                return self.detail
            case MissReason.INPUT_CHANGED:
                return f"the content of {self.detail} has changed"
            case MissReason.CODE_CHANGED:
                return f"{self.change}"
            case _:
                return f"{self.reason}"


def look_up(store: Store, site: Site, call: StageCall, attempt: str = "") -> Hit | Miss:
    """Look up the artifact of ``call``; with an ``attempt``, only one that it made with the present code is.

    Makes one list request if the store is a bucket.
    """
    store = store_for(store, site, call)
    manifest = store.find(call.stage.name, call.key)
    if manifest is None and store.has(call.stage.name, call.key):
        return Miss(MissReason.DAMAGED, detail="its manifest.json is missing, damaged or another artifact's")
    change = code_of(store, call).change_since(manifest.made) if manifest else UNCHANGED
    if attempt and not (manifest and is_of_attempt(manifest, attempt) and change == UNCHANGED):
        return Miss(MissReason.FORCED, manifest)
    if manifest is None:
        return Miss(MissReason.NOT_MADE)
    if site.strict and "modules" not in manifest.made:
        return Miss(MissReason.CODE_UNKNOWN, manifest)
    if site.strict and change != UNCHANGED:
        return Miss(MissReason.CODE_CHANGED, manifest, change=change)
    if changed := changed_input(call, manifest):
        return Miss(MissReason.INPUT_CHANGED, manifest, changed)
    if damage := store.damage(manifest):
        return Miss(MissReason.DAMAGED, manifest, damage)
    artifact = store.artifact(manifest)
    if call.stage.still_valid and not call.stage.still_valid(artifact, site):
        return Miss(MissReason.EFFECTS_GONE, manifest)
    return Hit(artifact, change)


def code_of(store: Store, call: StageCall) -> StageCode:
    """The present code and libraries of the call's stage."""
    return stage_code(call.stage.body.__module__, store.root / "stamps" / "code.json")


def changed_input(call: StageCall, manifest: Manifest) -> str:
    """The stage of the first input that differs from the content in ``manifest``; "" if none differs."""
    inputs = call.input_contents.items()
    return next((name.partition("/")[0] for name, content in inputs if manifest.inputs.get(name) != content), "")


def store_for(store: Store, site: Site, call: StageCall) -> Store:
    """The store for the call's artifact: the local one for a stage that writes to a local MLflow."""
    return store.local() if call.stage.still_valid and not site.shares_tracking else store
