"""Makes a schedule of faults from a seed, runs it, and checks the invariants."""

from dataclasses import dataclass
from functools import partial
from random import Random

from infra.errors import Fault as Failure
from infra.store.local import LocalStore
from infra.store.manifest import MANIFEST
from simulated import pipeline
from simulated.machine import Fault, Killed, Machine, Process, Violation
from simulated.pipeline import ROOT, Start, World, damage_of, kept_manifest
from simulated.system_calls import simulated_system

DAMAGES = ("a byte, the time kept", "a byte", "a file gone", "a file cut", "a stranger", "no manifest")
MOST_CALLS = 900
"""About as many system calls as a run makes."""


@dataclass(frozen=True)
class Phase:
    """Runs at the same time with their faults; before them, the world or the disk changes."""

    starts: tuple[Start, ...]
    faults: tuple[Fault, ...] = ()
    damages: tuple[tuple[str, int], ...] = ()
    world_changes: bool = False
    much_later: bool = False
    """Whether more than a week passes before it."""


@dataclass(frozen=True)
class Schedule:
    seed: int
    phases: tuple[Phase, ...]

    def __str__(self) -> str:
        lines = [f"seed {self.seed}"]
        for number, phase in enumerate(self.phases, 1):
            changes = ", the world changes" * phase.world_changes + ", much later" * phase.much_later
            lines.append(f"phase {number}{changes}")
            lines += [f"  damage: {kind} ({choice})" for kind, choice in phase.damages]
            lines += [f"  process {n}: {start}" for n, start in enumerate(phase.starts)]
            lines += [f"  {fault}" for fault in phase.faults]
        return "\n".join(lines)


def schedule_of(seed: int) -> Schedule:
    random = Random(seed)
    numbers = (1,) if random.random() < 0.6 else (1, 2)
    count = random.choice((1, 2, 2, 3, 4))
    forcing, damaging, collecting = random.random() < 0.4, random.random() < 0.3, random.random() < 0.3
    phases: list[Phase] = []
    for index in range(random.choice((1, 1, 2, 2, 3))):
        starts = []
        for _ in range(random.randint(1, count)):
            forced: tuple[str, ...] = ()
            if forcing and random.random() < 0.5:
                forced = random.choice((("make",), ("total",), ("make", "twice", "total")))
            attempt = f"attempt-{random.randint(0, 2)}" if forced else ""
            collects = collecting and random.random() < 0.3
            starts.append(Start(0, collects=True) if collects else Start(random.choice(numbers), forced, attempt))
        faults = {}
        for _ in range(random.randint(0, 6)):
            kind = random.choice(("switch", "switch", "switch", "kill", "kill", "power", "error", "clock"))
            at = int(MOST_CALLS ** random.uniform(0.3, 1)) if random.random() < 0.3 else random.randint(1, MOST_CALLS)
            fault = Fault(kind, random.randrange(len(starts)), at, random.getrandbits(16))
            faults[fault.process, fault.at] = fault
        damages = []
        if damaging and index and random.random() < 0.7:
            damages = [(random.choice(DAMAGES), random.getrandbits(16)) for _ in range(random.randint(1, 2))]
        changes, much_later = random.random() < 0.3, collecting and random.random() < 0.3
        phases.append(Phase(tuple(starts), tuple(faults.values()), tuple(damages), changes, much_later))
    return Schedule(seed, tuple(phases))


def run(schedule: Schedule) -> list[str]:
    """Run a schedule, then each run again without faults; gives the faults that happened. Raises Violation."""
    machine = Machine(f"{ROOT}")
    with simulated_system(machine, Random(schedule.seed)), pipeline.observed(machine) as world:
        for index, phase in enumerate(schedule.phases):
            world.says += phase.world_changes
            machine.disk.now_ns += phase.much_later * 8 * 86_400 * 10**9
            for kind, choice in phase.damages:
                _damage(world, kind, Random(choice))
            machine.log.append(f"phase {index + 1}")
            processes = machine.run([partial(pipeline.run, start) for start in phase.starts], phase.faults)
            damaged = any(each.damages for each in schedule.phases[: index + 1])
            _check_errors(processes, phase, damaged)
            _check_sealed(world, damaged)
        runs = (start for phase in schedule.phases for start in phase.starts if not start.collects)
        starts = dict.fromkeys(Start(start.number) for start in runs)
        for start in starts:
            _run_to_the_end(machine, world, start, 1 + sum(len(phase.damages) for phase in schedule.phases))
    return machine.log


def _check_errors(processes: list[Process], phase: Phase, damaged: bool) -> None:
    """Only what happened to a run may end it: a failed call, damage, or a run beside it that replaces or removes."""
    forced = any(start.forced or start.collects for start in phase.starts)
    for process in processes:
        if process.error is None or isinstance(process.error, Killed) or process.disturbed:
            continue
        if not (isinstance(process.error, Failure | OSError) and (damaged or (forced and len(processes) > 1))):
            raise Violation(f"process {process.number} ended with {process.error!r}") from process.error


def _check_sealed(world: World, damaged: bool) -> None:
    """What was sealed is there, and whatever has an artifact's name is whole."""
    for folder in () if damaged else ROOT.glob("*/*"):
        if folder.parent.name in pipeline.ORDER and "." not in folder.name:
            manifest = LocalStore(ROOT).find(folder.parent.name, folder.name)
            is_half = manifest is None or damage_of(manifest)
            if is_half and (folder.parent.name, folder.name) not in world.removed:
                raise Violation(f"{folder.parent.name} is half sealed")
    for (stage, key), contents in world.sealed.items():
        manifest = kept_manifest(stage, key)
        if manifest is None:
            raise Violation(f"{stage} was sealed and is gone or damaged")
        if manifest.content not in {contents[-1], *world.begun[stage, key]}:
            raise Violation(f"{stage} was sealed again and is the old one")


def _run_to_the_end(machine: Machine, world: World, start: Start, tries: int) -> None:
    """The same run without faults ends with the right value, and once more with hits alone."""
    for _ in range(tries):
        (process,) = machine.run([partial(pipeline.run, start)], ())
        if process.error is None:
            break
        if tries == 1 or not isinstance(process.error, Failure):
            raise Violation(f"a run without faults ended with {process.error!r}") from process.error
    else:
        raise Violation(f"a run without faults does not come to its end: {process.error!r}")
    made = sum(map(len, world.sealed.values()))
    values = world.results
    if values["twice"] != 2 * values["make"] or values["total"] != 3 * values["make"]:
        raise Violation(f"a stale hit: {values}")
    machine.run([partial(pipeline.run, start)], ())
    if sum(map(len, world.sealed.values())) != made:
        raise Violation("a run that has ended makes a stage again")
    if machine.locks:
        raise Violation("a lock is held by the dead")


def _damage(world: World, kind: str, random: Random) -> None:
    """Damage one artifact on the disk, behind the back of the store."""
    manifests = [manifest for manifest in LocalStore(ROOT).list() if not damage_of(manifest)]
    if not manifests:
        return
    manifest = random.choice(manifests)
    folder = ROOT / manifest.stage / manifest.key
    name = random.choice(sorted(manifest.files))
    disk = world.machine.disk
    node = disk.find(f"{folder / name}")
    if kind == "a stranger":
        (folder / "part-9").write_text("7 ")
        disk.sync(disk.find(f"{folder}"))
        return
    world.sealed.pop((manifest.stage, manifest.key), None)
    if kind.startswith("a byte") and node.data:
        node.data[0] ^= 1
        node.mtime_ns += 0 if kind.endswith("kept") else 1_000
    elif kind == "a file cut":
        del node.data[len(node.data) // 2 :]
        node.mtime_ns += 1_000
    else:
        (folder / (MANIFEST if kind == "no manifest" else name)).unlink()
    node.synced = bytes(node.data)


def broken(schedule: Schedule) -> str:
    """The invariant that a schedule breaks, or ""."""
    try:
        run(schedule)
    except Violation as violation:
        return f"{violation}"
    return ""


def report(schedule: Schedule) -> str:
    """What a schedule breaks, and how to run it again; "" if it breaks nothing."""
    found = broken(schedule)
    return found and f"{found}\n{schedule}\nrun it again: schedule_of({schedule.seed})"
