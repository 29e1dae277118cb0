"""Readable names of artifacts: ``demo/clean`` is the newest artifact of the stage clean of the run demo.

``demo`` names all artifacts of the run, ``demo/score`` those of one stage, ``demo/score/test`` that of one item. The
records of the run say which artifact is the newest. A number after the slash names a model version: ``demo/3``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from flows.reproduce import STAGES
from flows.runner import records
from flows.runner.find_run import find_run, is_file
from flows.runner.recorded_runs import RecordedStage, read_runs, run_names
from flows.runs.values import did_you_mean
from infra.errors import BadConfiguration
from infra.store.local import Store
from infra.store.manifest import Manifest

NAME = re.compile(r"(?P<run>(?:.*\.py:)?[^/]*)(?:/(?P<stage>[^/]*)(?:/(?P<item>.+))?)?")


@dataclass(frozen=True)
class ArtifactName:
    """A run as its records name it, and a stage and an item, which are "" for all."""

    run: str
    stage: str = ""
    item: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, (self.run, self.stage, self.item)))

    def covers(self, other: "ArtifactName") -> bool:
        """Whether the name means ``other``, perhaps among more artifacts."""
        return self.run == other.run and self.stage in ("", other.stage) and self.item in ("", other.item)


def parse_name(text: str) -> ArtifactName:
    """The parts of ``RUN``, ``RUN/STAGE`` or ``RUN/STAGE/ITEM``; RUN may be ``FILE.toml`` or ``FILE.py:NAME``.

    Raises BadConfiguration for an unknown stage, and for a file without that run.
    """
    run, stage, item = _split(text)
    if stage and stage not in STAGES:
        hint = did_you_mean(stage, STAGES) or ","
        raise BadConfiguration(f"unknown stage {stage!r} in {text!r}{hint} known are: {', '.join(STAGES)}")
    return ArtifactName(find_run(run).name if is_file(run) else run, stage, item)


def is_version(text: str) -> bool:
    """Whether the text names a model version (``demo@champion``, ``demo/3``) and no run or artifact."""
    _, stage, _ = _split(text)
    return "@" in text or (stage != "" and stage not in STAGES)


def find_artifacts(store: Store, text: str) -> dict[ArtifactName, str]:
    """The keys of all artifacts that the text names, in the order of the stages; "" names those of every run.

    An artifact may have been removed since. Raises BadConfiguration if no record has such an artifact.
    """
    records.receive_records(store, parse_name(text).run if text else "")
    wanted = parse_name(text)
    runs = [wanted.run] if text else run_names(store.root)
    known = {name: key for run in runs for name, key in _names_of_run(store, run)}
    found = {name: key for name, key in known.items() if not text or wanted.covers(name)}
    if text and not found:
        raise BadConfiguration(_nothing_found(store, text, wanted, known))
    return found


def stage_manifests(store: Store, text: str, stage: str) -> dict[str, Manifest]:
    """The manifests of one stage by item, all from one record: ``RUN``, ``RUN/STAGE`` or ``RUN/STAGE/ITEM``.

    Raises BadConfiguration if the text names another stage, no record has the stage, or an artifact is missing.
    """
    name = parse_name(text)
    if name.stage not in ("", stage):
        raise BadConfiguration(f"{text!r} is an artifact of {name.stage}, allowed is a run or {name.run}/{stage}")
    records.receive_records(store, name.run)
    if name.item:
        found = {each.item: key for each, key in _names_of_run(store, name.run) if name.covers(each)}
    else:
        found = last_keys(store.root, name.run, stage)
    if not found:
        raise BadConfiguration(
            f"{text!r} has no artifact of {stage} here: run it, or name a version as in demo@champion"
        )
    return {item: existing_manifest(store, text, stage, key) for item, key in found.items()}


def existing_manifest(store: Store, text: str, stage: str, key: str) -> Manifest:
    """The manifest of an artifact that ``text`` needs. Raises BadConfiguration if it is missing."""
    manifest = store.manifest(stage, key)
    if manifest is None:
        raise BadConfiguration(
            f"{text!r} needs {store.address(stage, key)}, but that artifact is missing: run it again"
        )
    return manifest


def last_keys(root: Path, name: str, stage: str) -> dict[str, str]:
    """The keys of a stage by item, from the newest record of the run in which each item has an artifact."""
    for each in read_runs(root, name):
        rows = [row for row in each.stages if row.stage == stage]
        if rows and all(row.has_artifact for row in rows):
            return {row.item: row.key for row in rows}
    return {}


def newest_of(newest_first: Iterable[Sequence[RecordedStage]]) -> dict[tuple[str, str], str]:
    """The key of the newest artifact of each (stage, item) in records of one run.

    Items of a stage that the newest record with the whole stage no longer has are left out.
    """
    found: dict[tuple[str, str], str] = {}
    whole: set[str] = set()
    for rows in newest_first:
        for stage in {row.stage for row in rows} - whole:
            of_stage = [row for row in rows if row.stage == stage]
            for row in of_stage:
                if row.has_artifact:
                    found.setdefault((stage, row.item), row.key)
            if all(row.has_artifact for row in of_stage):
                whole.add(stage)
    return found


def _split(text: str) -> tuple[str, str, str]:
    match = NAME.fullmatch(text)
    run, stage, item = (match["run"], match["stage"], match["item"]) if match else (text, "", "")
    return run, stage or "", item or ""


def _names_of_run(store: Store, run: str) -> Iterator[tuple[ArtifactName, str]]:
    found = newest_of(each.stages for each in read_runs(store.root, run))
    for stage, (known, item) in product(STAGES, found):
        if known == stage:
            yield ArtifactName(run, stage, item), found[stage, item]


def _nothing_found(store: Store, text: str, wanted: ArtifactName, known: Mapping[ArtifactName, str]) -> str:
    if not known:
        runs = ", ".join(run_names(store.root)) or "none"
        return f"run {wanted.run!r} has no artifact on record here, runs with a record: {runs}"
    near = [name for name in known if name.stage == wanted.stage] or list(known)
    return f"{text!r} has no artifact on record here, there is: {', '.join(map(str, near))}"
