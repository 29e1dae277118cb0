"""Finds and removes artifacts and leftovers that no kept run needs, and says why each other artifact stays.

For each run with its overrides, all artifacts in the newest record and in records of running runs are needed. For each
stage, so are the artifacts in the newest record that has it, and in the newest finished record that has it. All their
inputs are needed too. A running run has a record from its start. A registered version needs its weights and vocabulary
(to continue training), its scores (to compare) and the pages of ``repro gap``. Another system needs its translations
and scores. The state beside a training, from which a longer one continues, is kept as long as the training.

An example, the newest record first; ``c3`` is the artifact of ``clean`` in record 3:

    record 3, finished, --until clean    c3      kept: the newest record
    record 2, failed                     c2 t2   t2 is kept: the newest training
    record 1, finished                   c1 t1   t1 is kept: the newest training of a finished record

Thus neither a shorter run nor a failed run makes an older training removable.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.inspection.artifact_graph import ArtifactGraph, Name, artifacts_of_tags, grouped, reached, read_nodes
from flows.runner.named_runs import object_of
from flows.runner.recorded_runs import RecordedRun, UnreadableRecord, read_run
from flows.runner.records import FINISHED, RUNNING, receive_records, record_files
from flows.runner.systems import foreign_scores
from infra.errors import BadConfiguration, BadData
from infra.processes.locks import try_file_lock
from infra.site import Site, open_store
from infra.store.states import unneeded_states
from infra.store.store import Leftover, Store
from infra.tracking.registry import versions

LEFTOVER_MIN_AGE_SECONDS = 7 * 24 * 3600.0
"""Leftovers of unfinished work are kept for this long, since a run may resume from them."""
VERSION_STAGES = ("average", "learn_bpe", "score")


@dataclass(frozen=True)
class ArtifactUse:
    """An artifact, and why it is kept or removable."""

    stage: str
    key: str
    bytes: int
    why: str


@dataclass
class GarbageReport:
    """Artifacts and leftovers that can be removed, and artifacts that are kept."""

    removable: list[ArtifactUse] = field(default_factory=list)
    kept: list[ArtifactUse] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    keep: Sequence[str] = ()
    """The runs to keep; empty for all."""

    def as_json(self) -> dict[str, Any]:
        return {
            "removable": [vars(each) for each in self.removable],
            "kept": [vars(each) for each in self.kept],
            "leftovers": [{"place": each.place, "bytes": each.bytes} for each in self.leftovers],
        }


def find_garbage(site: Site, keep: Sequence[str] = ()) -> GarbageReport:
    """Find what can be removed. If ``keep`` names runs, only these are kept.

    Raises BadConfiguration for a run without a record, BadData for an unreadable record.
    """
    store = open_store(site)
    old = list(store.leftovers(time.time() - LEFTOVER_MIN_AGE_SECONDS))
    report = GarbageReport(leftovers=old, keep=keep)
    sealed = ArtifactGraph(read_nodes(store.list()))
    needed = needed_artifacts(store, site, keep, sealed)
    report.leftovers += unneeded_states(store, needed)
    for name, artifact in sealed.nodes.items():
        why = needed.get(name) or ("at work" if store.is_locked(*name) else "")
        uses = report.kept if why else report.removable
        uses.append(ArtifactUse(*name, artifact.bytes, why or "no kept run needs it"))
    return report


def remove_garbage(site: Site, report: GarbageReport) -> int:
    """Remove what ``find_garbage`` found, unless it is locked or needed by now; return the bytes removed."""
    store = open_store(site)
    removed = 0
    needed: Mapping[Name, str] = {}
    seen: Mapping[str, int] | None = None

    def needed_now() -> Mapping[Name, str]:
        nonlocal needed, seen
        if (present := _record_times(store.root)) != seen:  # new runs have started
            needed = needed_artifacts(store, site, report.keep, ArtifactGraph(read_nodes(store.list())))
            seen = present
        return needed

    for each in report.removable:
        with try_file_lock(store.lock_file(each.stage, each.key)) as free:
            if free and (each.stage, each.key) not in needed_now() and store.find(each.stage, each.key):
                store.remove(each.stage, each.key)
                removed += each.bytes
    for leftover in report.leftovers:
        is_needed = leftover.artifact is not None and leftover.artifact in needed_now()
        if not is_needed and leftover.remove() is not False:
            removed += leftover.bytes
    return removed


def _record_times(root: Path) -> dict[str, int]:
    """Return when a record of each run was last written, in nanoseconds."""
    runs = root / "runs"
    return {folder.name: folder.stat().st_mtime_ns for folder in (os.scandir(runs) if runs.is_dir() else ())}


def needed_artifacts(store: Store, site: Site, keep: Sequence[str], graph: ArtifactGraph) -> dict[Name, str]:
    """Return the needed artifacts, each with its reason."""
    receive_records(store)
    needed: dict[Name, str] = {}
    known = set()
    for record, names in _kept_records(store.root):
        known.add(record.run)
        if not keep or record.run in keep or record.outcome == RUNNING:
            needed |= dict.fromkeys(reached(names, graph.inputs, needed), f"run {record.full_name}")
    if unknown := [run for run in keep if run not in known]:
        raise BadConfiguration(f"--keep is {unknown[0]!r}, which has no record; runs with a record: {', '.join(known)}")
    gaps = grouped((f"{node.facts.get('system')}", name) for name, node in graph.nodes.items() if node.stage == "gap")
    for version in versions(site.registry):
        names = [name for name in artifacts_of_tags(version) if name[0] in VERSION_STAGES]
        names += gaps.get(version.label, [])
        needed |= {name: f"version {version.label}" for name in names if name not in needed}
    for each in foreign_scores(store):
        needed |= {(made.stage, made.key): each.name for made in (each.score, each.translations)}
    return needed


def _kept_records(root: Path) -> Iterator[tuple[RecordedRun, list[Name]]]:
    """Yield the records that keep artifacts, newest first, with these. The top of this file has rule and example."""
    # By run, object of a file and overrides: stages with an artifact in newer records, and in newer finished records.
    in_any: dict[tuple[str, str, tuple[str, ...]], set[str]] = {}
    in_finished: dict[tuple[str, str, tuple[str, ...]], set[str]] = defaultdict(set)
    for path in record_files(root):
        try:
            record = read_run(path)
        except UnreadableRecord as error:
            raise BadData(f"{error}; so the needs of its run are unknown: repair or remove it") from error
        variant = (record.run, object_of(record.asked.get("run", "")), record.overrides)
        is_newest = variant not in in_any
        newer = in_any.setdefault(variant, set())
        stages = {row.stage for row in record.stages if row.has_artifact}
        kept_stages = stages - newer
        newer |= stages
        if record.outcome == FINISHED:
            kept_stages |= stages - in_finished[variant]
            in_finished[variant] |= stages
        is_whole = is_newest or record.outcome == RUNNING
        names = [(row.stage, row.key) for row in record.stages if is_whole or row.stage in kept_stages]
        if names:
            yield record, names
