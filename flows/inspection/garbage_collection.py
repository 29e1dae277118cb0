"""What no kept run needs: which artifacts, which leftovers, and why the others stay.

A run is kept by its newest record, and by the newest one that finished: what they name, and all that was made from, is
needed. A run that is at work has its record from its beginning. A registered version needs what can be done with it:
its weights and vocabulary (to train on) and its scores (to compare).
"""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.errors import BadConfiguration, BadData
from infra.processes.locks import try_file_lock
from infra.site import Site, open_store
from infra.store.local import Store
from infra.store.maintenance import Leftover, leftovers
from infra.store.manifest import bytes_of
from infra.tracking.registry import versions

LEFTOVER_MIN_AGE_SECONDS = 7 * 24 * 3600.0
"""What unfinished work left behind stays for so long, as it may be gone on from."""
VERSION_STAGES = ("average", "learn_bpe", "score")

Name = tuple[str, str]


@dataclass(frozen=True)
class ArtifactUse:
    """An artifact, and why it stays or goes."""

    stage: str
    key: str
    bytes: int
    why: str


@dataclass
class GarbageReport:
    """What would go, and what stays."""

    removable: list[ArtifactUse] = field(default_factory=list)
    kept: list[ArtifactUse] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        left = [{"place": each.place, "bytes": each.bytes} for each in self.leftovers]
        return {"goes": [vars(each) for each in self.removable], "stays": [vars(e) for e in self.kept], "left": left}


def find_garbage(site: Site, keep: Sequence[str] = ()) -> GarbageReport:
    """Look. ``keep`` names the only runs whose records count, where not all do.

    Raises BadConfiguration for a run without a record, BadData for a record that cannot be read.
    """
    store = open_store(site)
    wanted = needed_artifacts(store, site, keep)
    found = GarbageReport(leftovers=list(leftovers(store, time.time() - LEFTOVER_MIN_AGE_SECONDS)))
    for manifest in store.sealed():
        name, size = (manifest.stage, manifest.key), bytes_of(manifest)
        with try_file_lock(store.lock_file(*name)) as free:
            why = wanted.get(name, "" if free else "at work")
        if why:
            found.kept.append(ArtifactUse(*name, size, why))
        else:
            found.removable.append(ArtifactUse(*name, size, "no kept run needs it"))
    return found


def remove_garbage(site: Site, found: GarbageReport) -> int:
    """Remove what ``find_garbage`` said goes, except what somebody holds by now; gives the bytes."""
    store, gone = open_store(site), 0
    for each in found.removable:
        with try_file_lock(store.lock_file(each.stage, each.key)) as free:
            if free:
                store.remove(each.stage, each.key)
                gone += each.bytes
    for leftover in found.leftovers:
        leftover.remove()
        gone += leftover.bytes
    return gone


def needed_artifacts(store: Store, site: Site, keep: Sequence[str]) -> dict[Name, str]:
    """Why each artifact that is needed is."""
    store.receive("runs")
    wanted: dict[Name, str] = {}
    known = set()
    for run, why, names in _kept_records(store.root):
        known.add(run)
        if not keep or run in keep:
            _mark_needed(store, names, why, wanted)
    if unknown := [run for run in keep if run not in known]:
        raise BadConfiguration(f"--keep is {unknown[0]!r}, which has no record; those with one: {', '.join(known)}")
    for version in versions(site.registry):
        tags = [(tag.split(".")[1], key) for tag, key in version.tags.items() if tag.startswith("key.")]
        names = [(stage, key) for stage, key in tags if stage in VERSION_STAGES]
        wanted |= {name: f"version {version.name}/{version.version}" for name in names if name not in wanted}
    return wanted


def _kept_records(root: Path) -> Iterator[tuple[str, str, list[Name]]]:
    """Of each run and its overrides the newest record, and the newest that finished: (run, why, artifacts)."""
    seen: set[tuple[str, tuple[str, ...], bool]] = set()
    for path in sorted((root / "runs").glob("*/*.json"), reverse=True):
        if path.name == "paper.json" or path.stem.endswith("-seeds"):
            continue
        try:
            record = json.loads(path.read_text())
            names = [(row["stage"], row["key"]) for row in record["stages"]]
            run, overrides, outcome = record["run"], tuple(record["overrides"]), record["outcome"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadData(f"{path} cannot be read, so what its run needs is not known: mend or remove it") from error
        newest = (run, overrides, False) not in seen
        finished = outcome == "FINISHED" and (run, overrides, True) not in seen
        seen |= {(run, overrides, False)} | ({(run, overrides, True)} if finished else set())
        if newest or finished:
            words = " ".join(["run", run, *overrides])
            yield run, words, names


def _mark_needed(store: Store, names: Sequence[Name], why: str, wanted: dict[Name, str]) -> None:
    """``names`` and all that they were made from."""
    waiting = [name for name in names if name not in wanted]
    while waiting:
        name = waiting.pop()
        if name in wanted:
            continue
        wanted[name] = why
        manifest = store.manifest(*name) or store.local().manifest(*name)
        for made_from in manifest.inputs if manifest else ():
            stage, _, key = made_from.partition("/")
            waiting.append((stage, key))
