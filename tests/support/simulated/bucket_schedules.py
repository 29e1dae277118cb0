"""Schedules for machines that share a bucket: snapshots, damage, requests that fail, are late or repeated."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from random import Random

from infra.errors import Fault as Failure
from infra.store.local import LocalStore
from infra.store.manifest import MANIFEST
from simulated import pipeline
from simulated.bucket_invariants import PREFIX, Watch
from simulated.cluster import Cluster, Member, clocks_and_threads
from simulated.machine import Fault, Killed, Violation
from simulated.objects import REQUEST_FAULTS, Objects
from simulated.pipeline import ROOT, Start, World
from simulated.schedules import Phase, Schedule
from simulated.system_calls import simulated_system

MOST_CALLS = 700
KINDS = ("switch", "switch", "kill", "kill", "stop", "stop", "suspend", "power", *2 * REQUEST_FAULTS)
FORCED = (("make",), ("total",), ("twice", "total"), pipeline.ORDER)
DAMAGES = ("cut", "other bytes", "other bytes, the ETag kept", "gone", "a copy altered", "a copy gone")


def schedule_of(seed: int) -> Schedule:
    """The schedule of a seed, for one to three runs on two machines."""
    random = Random(seed)
    forcing, damaging = random.random() < 0.4, random.random() < 0.3
    phases: list[Phase] = []
    for index in range(random.choice((1, 2, 2))):
        starts = []
        for number in range(random.choice((1, 2, 2, 3))):
            forced = random.choice(FORCED) if forcing and random.random() < 0.4 else ()
            attempt = f"attempt-{random.randint(0, 2)}" if forced else ""
            starts.append(Start(1, forced, attempt, number % 2))
        faults = {}
        for _ in range(random.randint(0, 6)):
            at = random.randint(1, MOST_CALLS)
            fault = Fault(random.choice(KINDS), random.randrange(len(starts)), at, random.getrandbits(16))
            faults[fault.process, fault.at] = fault
        damages = []
        if damaging and index:
            damages = [(random.choice(DAMAGES), random.getrandbits(16)) for _ in range(random.randint(1, 2))]
        phases.append(Phase(tuple(starts), tuple(faults.values()), tuple(damages), random.random() < 0.3))
    return Schedule(seed, tuple(phases))


def run(schedule: Schedule) -> list[str]:
    """Run a schedule, then the pipeline on each machine and on a new one without faults. Raises Violation."""
    _warm_up()
    return _run_schedule(schedule)


@cache
def _warm_up() -> None:
    """Fill what this process caches, so that the calls of a schedule have the same numbers each time."""
    _run_schedule(Schedule(0, (Phase((Start(1),)),)))


def _run_schedule(schedule: Schedule) -> list[str]:
    with _simulated(schedule.seed) as (cluster, watch):
        damages = 0
        for index, phase in enumerate(schedule.phases):
            watch.world.says += phase.world_changes
            for kind, choice in phase.damages:
                _damage(watch, kind, Random(choice))
            damages += len(phase.damages)
            cluster.log.append(f"phase {index + 1}")
            forced = any(start.forced for start in phase.starts)
            for process in _run(cluster, phase.starts, phase.faults):
                contested = len(phase.starts) > 1 and forced
                _check_error(process, contested or damages > 0)
            _check_artifacts(watch)
        for host in (0, 1, 2):
            if host == 2:  # it has no copies, so it reads all that is in the bucket
                watch.damaged.clear()
            _run_to_the_end(cluster, watch, Start(1, machine=host), 1 + damages)
        _check_artifacts(watch)
    return cluster.log


@contextmanager
def _simulated(seed: int) -> Iterator[tuple[Cluster, Watch]]:
    cluster = Cluster(f"{ROOT}")
    objects = Objects(cluster)
    with (
        simulated_system(cluster, Random(seed)),
        clocks_and_threads(cluster),
        pipeline.observed(cluster, objects) as world,
    ):
        watch = Watch(cluster, objects, world)
        world.work = watch.work
        yield cluster, watch


def _run(cluster: Cluster, starts: tuple[Start, ...], faults: tuple[Fault, ...] = ()) -> list[Member]:
    return cluster.start([(start.machine, partial(pipeline.run, start)) for start in starts], faults)


def _check_error(process: Member, excused: bool) -> None:
    """Only what happened to a run may end it: a failed request, damage, or a run beside it that forces stages."""
    if process.error is None or isinstance(process.error, Killed) or process.disturbed:
        return
    if not (excused and isinstance(process.error, Failure | OSError)):
        raise Violation(f"{process} ended with {process.error!r}") from process.error


def _check_artifacts(watch: Watch) -> None:
    """Every artifact with a manifest is whole, unless it was damaged."""
    for place in watch.places():
        if place not in watch.damaged and watch.whole(place) is None:
            raise Violation(f"{place} is not whole")


def _run_to_the_end(cluster: Cluster, watch: Watch, start: Start, tries: int) -> None:
    """A run without faults ends with the right values, and its machine has what the bucket has."""
    for _ in range(tries):
        (process,) = _run(cluster, (start,))
        if process.error is None:
            break
        if tries == 1 or not isinstance(process.error, Failure):
            raise Violation(f"a run without faults ended with {process.error!r}") from process.error
    else:
        raise Violation(f"a run without faults does not come to its end: {process.error!r}")
    values = watch.world.results
    if values["twice"] != 2 * values["make"] or values["total"] != 3 * values["make"]:
        raise Violation(f"a stale hit: {values}")
    if watch.damaged:
        return
    manifests = [parsed[0] for place in watch.places() if (parsed := watch.manifest(place))]
    shared = sorted(watch.world.values[manifest.content] for manifest in manifests)
    if shared != sorted(values.values()):
        raise Violation(f"a run gives {sorted(values.values())}, and the bucket has {shared}")


def _damage(watch: Watch, kind: str, random: Random) -> None:
    """Damage an object, or a machine's copy of an artifact, behind the back of the store."""
    if kind.startswith("a copy"):
        return _damage_copy(watch.world, kind, random)
    objects = watch.objects
    if not objects.content:
        return None
    key = random.choice(sorted(objects.content))
    watch.damaged.add(watch.artifact_of(key.removeprefix(PREFIX)))
    content = objects.content[key]
    if kind == "gone":
        del objects.content[key], objects.etags[key], objects.modified[key]
        return None
    altered = (
        content[: len(content) // 2] if kind == "cut" else bytes([content[0] ^ 1]) + content[1:] if content else b"1"
    )
    etag = objects.etags[key]
    objects.content[key] = altered
    if not kind.endswith("kept"):
        etag = f'"damage-{random.getrandbits(32)}"'
    objects.etags[key] = etag
    return None


def _damage_copy(world: World, kind: str, random: Random) -> None:
    root = ROOT / f"machine-{random.randrange(2)}"
    copies = [(manifest, name) for manifest in LocalStore(root).list() for name in (MANIFEST, *sorted(manifest.files))]
    if not copies:
        return
    manifest, name = random.choice(copies)
    path = root / manifest.stage / manifest.key / name
    disk = world.machine.disk
    if not path.exists():
        return
    node = disk.find(f"{path}")
    if kind == "a copy gone":
        path.unlink()
    elif node.data:
        node.data[0] ^= 1
        node.mtime_ns += 1_000 * random.randrange(2)
        node.synced = bytes(node.data)
