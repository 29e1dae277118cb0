"""Schedules for machines that share a bucket: requests fail before or after they take effect, or are repeated."""

import hashlib
import json
from functools import partial
from random import Random

from infra.errors import Fault as Failure
from infra.store.manifest import MANIFEST, parse_manifest
from simulated import pipeline
from simulated.machine import Fault, Killed, Machine, Violation
from simulated.objects import REQUEST_FAULTS, Objects
from simulated.pipeline import ROOT, Start, World
from simulated.schedules import Phase, Schedule
from simulated.system_calls import simulated_system

MOST_CALLS = 1_500
KINDS = ("switch", "switch", "switch", "kill", "power", *REQUEST_FAULTS, *REQUEST_FAULTS)


def schedule_of(seed: int) -> Schedule:
    """The schedule of a seed, for one to three runs on two machines."""
    random = Random(seed)
    forcing = random.random() < 0.4
    phases = []
    for _ in range(random.choice((1, 2, 2))):
        starts = []
        for number in range(random.choice((1, 2, 2, 3))):
            forced: tuple[str, ...] = ("make",) if forcing and random.random() < 0.4 else ()
            starts.append(Start(1, forced, f"attempt-{number}" if forced else "", number % 2))
        faults = {}
        for _ in range(random.randint(0, 6)):
            at = random.randint(1, MOST_CALLS)
            fault = Fault(random.choice(KINDS), random.randrange(len(starts)), at, random.getrandbits(16))
            faults[fault.process, fault.at] = fault
        phases.append(Phase(tuple(starts), tuple(faults.values()), world_changes=random.random() < 0.4))
    return Schedule(seed, tuple(phases))


def run(schedule: Schedule) -> list[str]:
    """Run a schedule, then the pipeline on each machine without faults. Raises Violation."""
    machine = Machine(f"{ROOT}")
    objects = Objects(machine)
    with simulated_system(machine, Random(schedule.seed)), pipeline.observed(machine, objects) as world:
        for index, phase in enumerate(schedule.phases):
            objects.on_write = partial(_check_replacement, world)
            world.says += phase.world_changes
            machine.log.append(f"phase {index + 1}")
            known = _published(world)
            for process in machine.run([partial(pipeline.run, start) for start in phase.starts], phase.faults):
                contested = len(phase.starts) > 1 and isinstance(process.error, Failure | OSError)
                if process.error and not isinstance(process.error, Killed) and not process.disturbed and not contested:
                    raise Violation(f"process {process.number} ended with {process.error!r}") from process.error
            if gone := known.keys() - _published(world).keys():
                raise Violation(f"{gone} was in the bucket and is gone")
        for number in (0, 1, 0):
            _run_to_the_end(world, Start(1, machine=number))
    return machine.log


def _check_replacement(world: World, key: str, content: bytes) -> None:
    """A manifest is replaced only by a forced stage, or where its inputs have changed."""
    assert world.objects is not None
    if key.endswith(f"/{MANIFEST}") and (old := world.objects.content.get(key)):
        before, after = (json.loads(text)["manifest"] for text in (old, content))
        if before["inputs"] == after["inputs"] and after["stage"] not in world.start.forced:
            raise Violation(f"{after['stage']} was sealed and is replaced by another machine's")


def _published(world: World) -> dict[str, str]:
    """The content of each artifact in the bucket; raises Violation unless all its files are there with their sums."""
    assert world.objects is not None
    found = {}
    for name, content in world.objects.content.items():
        place, _, last = name.rpartition("/")
        if last != MANIFEST:
            continue
        _, stage, key = place.split("/")
        parsed = parse_manifest(content, stage, key)
        if parsed is None:
            raise Violation(f"{name} is not a manifest")
        manifest, envelope = parsed
        for file, told in manifest.files.items():
            sent = world.objects.content.get(f"{place}/{envelope['id']}/{file}")
            if sent is None or hashlib.sha256(sent).hexdigest() != told["sha256"]:
                raise Violation(f"{stage} is half sent: {file} is {'altered' if sent is not None else 'missing'}")
        found[place] = manifest.content
    return found


def _run_to_the_end(world: World, start: Start) -> None:
    """A run without faults ends with the right values, and its machine has what the bucket has."""
    (process,) = world.machine.run([partial(pipeline.run, start)], ())
    if process.error is not None:
        raise Violation(f"a run without faults ended with {process.error!r}") from process.error
    values = world.results
    if values["twice"] != 2 * values["make"] or values["total"] != 3 * values["make"]:
        raise Violation(f"a stale hit: {values}")
    shared = sorted(world.values[content] for content in _published(world).values())
    if shared != sorted(values.values()):
        raise Violation(f"a run gives {sorted(values.values())}, and the bucket has {shared}")
