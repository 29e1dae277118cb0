"""What the simulated processes run: the real planner, runner and store, with three toy stages.

``make`` gives what the world says at that time, so that making it again may change its content under the same key.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from infra.errors import BadData
from infra.site import Site
from infra.store.files import file_damage, sha256_of
from infra.store.local import LocalStore, _file_names, _read_text
from infra.store.manifest import MANIFEST, Manifest, content_digest, is_of_attempt, parse_manifest
from infra.store.store import Artifact
from simulated import recorded_runs
from simulated.machine import Machine, Process, Violation
from tasks.engine.planner import Attempt, Planner, Scope
from tasks.engine.stage import Facts, _stage_context, progress, stage

ROOT = Path("/simulated/root")
ORDER = ("make", "twice", "total")


@dataclass(frozen=True)
class Start:
    """One run: its number, the stages that are forced, and the attempt that they belong to; or a garbage collection."""

    number: int
    forced: tuple[str, ...] = ()
    attempt: str = ""
    collects: bool = False
    """Whether it is ``repro gc --delete``."""


@dataclass
class World:
    """What the oracle knows: which value each content stands for, and what was sealed."""

    machine: Machine
    says: int = 0
    """Decides what ``make`` gives."""
    values: dict[str, int] = field(default_factory=dict)
    """The number in each artifact that was sealed, by content digest."""
    sealed: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Content digests that were sealed under a key, in their order."""
    begun: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """Content digests whose sealing began after the last one of ``sealed`` and did not end."""
    making: dict[tuple[str, str], Process] = field(default_factory=dict)
    removed: set[tuple[str, str]] = field(default_factory=set)
    """What garbage collection began to remove: a power loss may leave a part, which the next run makes again."""
    starts: dict[Process, Start] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)
    """What the last run read, by stage."""
    finished: set[tuple[str, str]] = field(default_factory=set)
    """Stage and key of what the last run used that ended well while no other ran."""

    @property
    def start(self) -> Start:
        """What the current process runs."""
        assert self.machine.current
        return self.starts[self.machine.current]

    def attempt_at(self, stage_name: str) -> str:
        """The attempt of the current process, if it forces the stage."""
        return self.start.attempt if stage_name in self.start.forced else ""


world: World
"""The world of the current schedule."""


@dataclass(frozen=True)
class Number:
    value: int


def read(artifact: Artifact) -> int:
    """The number in an artifact, which holds it twice. To read takes long: others go on meanwhile."""
    folder = artifact.path()
    world.machine.sleep(1.0)
    texts = {(folder / name).read_text() for name in ("n", "deep/n")}
    if len(texts) > 1:
        raise BadData("the two files differ")
    return int(texts.pop())


def write(out: Path, value: int) -> None:
    (out / "deep").mkdir(exist_ok=True)
    for name in ("n", "deep/n"):
        with (out / name).open("w") as file:
            for digit in str(value):
                file.write(digit)


@contextlib.contextmanager
def body() -> Iterator[str]:
    """Check that the current stage has to be made, and by this process alone; gives the attempt."""
    call, process = _stage_context.get().call, world.machine.current
    assert process
    place = (call.stage.name, call.key)
    holder = world.making.get(place)
    if holder and holder is not process and not holder.dead:
        raise Violation(f"{call.label} is made by two processes at a time")
    world.making[place] = process
    attempt = world.attempt_at(call.stage.name)

    def is_there() -> bool:
        manifest = kept_manifest(call.stage.name, call.key)
        if manifest is None or dict(manifest.inputs) != call.input_contents:
            return False
        return is_of_attempt(manifest, attempt)

    if world.machine.observe(is_there):
        raise Violation(f"{call.label} is made again though it is sealed")
    try:
        yield attempt
    finally:
        world.making.pop(place, None)


def kept_manifest(stage_name: str, key: str) -> Manifest | None:
    """The manifest of a whole artifact, at its place or, while it is being replaced, beside it."""
    place = ROOT / stage_name / key
    for folder in [place] if place.exists() else place.parent.glob(f"{key}.replaced-*"):
        parsed = parse_manifest(_read_text(folder / MANIFEST), stage_name, key)
        if parsed and not damage_of(parsed[0], folder):
            return parsed[0]
    return None


def damage_of(manifest: Manifest, folder: Path | None = None) -> str:
    """The first damage of an artifact, every byte read."""
    folder = folder or ROOT / manifest.stage / manifest.key
    return next((found for name, sums in manifest.files.items() if (found := file_damage(folder, name, sums))), "")


@stage(version=1)
def make(out: Path, number: Number) -> Facts:
    with body():
        write(out, 10 * number.value + world.says)
        (out / f"says-{world.says}").write_text("")
    return {}


@stage(version=1)
def twice(out: Path, number: Artifact) -> Facts:
    with body():
        write(out, 2 * read(number))
    return {}


@stage(version=1, resume=True)
def total(out: Path, numbers: tuple[Artifact, ...]) -> Facts:
    """A part for each number, which is written once and for all, as a checkpoint is; then their sum."""
    with body() as attempt:
        parts = [out / f"part-{index}" for index in range(len(numbers))]
        if begun := [part for part in parts if part.exists()]:  # an unforced run may go on with an attempt's work
            attempt = begun[0].read_text().split(" ")[1]
        for part, number in zip(parts, numbers, strict=True):
            if not part.exists():
                written = part.with_name(f"{part.name}.partial")
                with written.open("w") as file:
                    file.write(f"{read(number)} {attempt}")
                    os.fsync(file.fileno())
                written.rename(part)
            progress(1, 2)
        write(out, sum(int(part.read_text().split(" ")[0]) for part in parts))
    return {}


def build(number: int) -> list[Artifact]:
    made = make(Number(number))
    doubled = twice(made)
    return [made, doubled, total((made, doubled))]


def _is_replaced(artifact: Artifact) -> bool:
    manifest = artifact.store.local().find(artifact.stage, artifact.key)
    return manifest is not None and manifest.content != artifact.content


def run(start: Start) -> None:
    """Plan and run the pipeline, then read what it made; or collect garbage."""
    assert world.machine.current
    world.starts[world.machine.current] = start
    store = LocalStore(ROOT)
    site = Site(root=ROOT)
    if start.collects:
        recorded_runs.collect(site)
        return
    scope = Scope(ORDER, attempt=Attempt(frozenset(start.forced), start.attempt))
    planner = Planner(store, site, scope)
    results: list[Artifact] = []

    def walk() -> None:
        results[:] = build(start.number)

    recorded_runs.run(planner, walk)
    alone = len(world.machine.processes) == 1
    world.finished = {(result.stage, result.key) for result in results if alone}
    for result in results:
        value = world.results[result.stage] = read(result)
        if world.values.get(result.content) != value and not world.machine.observe(partial(_is_replaced, result)):
            raise Violation(f"{result.stage} is {value}, and sealed was {world.values.get(result.content)}")


@contextlib.contextmanager
def observed(machine: Machine) -> Iterator[World]:
    """A new world, in which each ``seal`` is checked and noted."""
    global world
    world = World(machine)
    real = LocalStore.seal

    def seal(store: LocalStore, partial: Path, description: dict[str, Any]) -> Artifact:
        attempt = world.attempt_at(description["stage"])
        content, place = machine.observe(lambda: _note_value(partial, description, attempt)), _place(description)
        world.begun.setdefault(place, set()).add(content)
        artifact = real(store, partial, description)
        world.sealed.setdefault(place, []).append(artifact.content)
        world.begun[place].clear()
        world.removed.discard(place)
        return artifact

    def forget(stage_name: str, key: str) -> None:
        world.sealed.pop((stage_name, key), None)
        world.removed.add((stage_name, key))

    with (
        recorded_runs.observed(machine, ROOT, lambda: world.finished, forget),
        patch.object(LocalStore, "seal", seal),
        patch("tasks.engine.runner.provenance", lambda: {"at": "now"}),
    ):
        yield world


def _place(description: dict[str, Any]) -> tuple[str, str]:
    return description["stage"], description["key"]


def _note_value(partial: Path, description: dict[str, Any], attempt: str) -> str:
    """Note the number in a folder before it is sealed: it must follow from the inputs that its manifest will name.

    Gives the content digest that the artifact will have.
    """
    value, stage_name = int((partial / "n").read_text()), description["stage"]
    files = {name: {"sha256": sha256_of(partial / name)} for name in _file_names(partial)}
    content = content_digest(files)
    world.values[content] = value
    inputs = [world.values[content] for content in description["inputs"].values() if content in world.values]
    if len(inputs) != len(description["inputs"]):
        raise Violation(f"{stage_name} was made from what was never sealed")
    if stage_name == "make":
        return content
    expected = 2 * inputs[0] if stage_name == "twice" else sum(inputs)
    if value != expected:
        raise Violation(f"{stage_name} is {value}, and its inputs make it {expected}")
    attempts = {part.read_text().split(" ")[1] for part in partial.glob("part-*")} - {attempt}
    if attempt and attempts:
        raise Violation(f"{stage_name} of attempt {attempt!r} holds parts of {attempts}")
    return content
