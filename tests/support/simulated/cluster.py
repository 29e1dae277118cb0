"""Machines whose processes have threads. Time passes when all of them wait.

A thread is a greenlet, like a process. It runs until it ends, sleeps, or a fault stops it; then the next one that need
not wait goes on, and when all wait the time goes on to the first that wakes.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from greenlet import getcurrent, greenlet

from infra.store.checkpoint_sync import Snapshot
from simulated.machine import Fault, Killed, Machine, Process, Violation

SECONDS = (1, 5, 15, 30, 70, 100, 150, 200, 300, 700)
"""How long a process may be stopped, or a request take: shorter and longer than the work of a stage."""


class Member(Process):
    """A process on one of the machines."""

    def __init__(self, host: int, number: int, body: Callable[[], None], faults: dict[int, Fault]) -> None:
        super().__init__(number, body, faults)
        self.host = host
        self.stopped_until = 0.0
        self.request_seconds = 0

    def __str__(self) -> str:
        return f"process {self.number} on machine {self.host}"


class Task:
    """The main thread of a process or another one, and when it wakes."""

    __slots__ = ("greenlet", "process", "wakes")

    def __init__(self, thread: greenlet, process: Member) -> None:
        self.greenlet, self.process, self.wakes = thread, process, 0.0


class Cluster(Machine):
    """Machines that have their folders on one simulated disk, so that all lose power at once."""

    current: Member | None

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.members: list[Member] = []
        self._tasks: deque[Task] = deque()
        self._hub = getcurrent()

    def start(self, bodies: list[tuple[int, Callable[[], None]]], faults: tuple[Fault, ...]) -> list[Member]:
        """Run processes, each on the machine of its number, to their ends; raises the Violation that one met."""
        self._calls, self._hub = 0, getcurrent()
        self.members = [
            Member(host, n, body, {fault.at: fault for fault in faults if fault.process == n})
            for n, (host, body) in enumerate(bodies)
        ]
        self.processes = [*self.members]
        mains = [Task(member.greenlet, member) for member in self.members]
        self._tasks = deque(mains)
        while self._tasks:
            task = self._next()
            process = task.process
            self._go_on(task)
            if isinstance(found := process.error, Violation):
                self._kill(self.members)
                raise found
            if task.greenlet.dead:
                self._tasks.remove(task)
                if task in mains:
                    if self.held_by(process) and not process.dead:
                        raise Violation(f"process {process.number} ended its run and holds a lock")
                    process.dead = True  # its threads end with it
            if process.dead:
                self._release(process)
        return self.members

    def _next(self) -> Task:
        while True:
            for _ in range(len(self._tasks)):
                task = self._tasks[0]
                self._tasks.rotate(-1)
                if task.process.dead or max(task.wakes, task.process.stopped_until) <= self.now:
                    return task
            self.now = min(max(task.wakes, task.process.stopped_until) for task in self._tasks)

    def _go_on(self, task: Task) -> None:
        self.current, self._task = task.process, task
        task.greenlet.switch()
        self.current = None

    def _kill(self, processes: list[Member]) -> None:
        """End all threads; nothing that they do meanwhile has an effect."""
        for process in processes:
            process.dead = True
        for task in [task for task in self._tasks if task.process in processes and not task.greenlet.dead]:
            self._go_on(task)
            self._release(task.process)

    def _pause(self) -> None:
        process = self.current
        assert process
        self._hub.switch()
        if process.dead:
            raise Killed

    def _cause(self, fault: Fault, process: Process, what: str) -> None:
        assert isinstance(process, Member)
        seconds = SECONDS[fault.choice % len(SECONDS)]
        if fault.kind in ("switch", "stop", "suspend", "power"):
            self.log.append(f"process {process.number}, call {process.calls}, {what}: {fault.kind} {seconds}")
        if fault.kind == "switch":
            self._pause()
        elif fault.kind == "stop":
            process.stopped_until = self.now + seconds
            self._pause()
        elif fault.kind == "suspend":  # a virtual machine
            for member in self.members:
                if member.host == process.host:
                    member.stopped_until = self.now + seconds
            self._pause()
        elif fault.kind == "power":
            self.log.append(f"  kept beside what was synced: {self.disk.lose_power(Random(fault.choice))}")
            for member in self.members:
                member.dead = True
            raise Killed
        else:
            process.request_seconds = seconds
            super()._cause(fault, process, what)

    def sleep(self, seconds: float) -> None:
        self.step("sleep")
        self._task.wakes = self.now + seconds
        self._pause()

    @property
    def thread(self) -> object:
        """The thread that runs now."""
        return self._task

    def spawn(self, body: Callable[[], None]) -> Task:
        """Start a thread of the current process, which ends with the process."""
        process = self.current
        assert process

        def run() -> None:
            try:
                body()
            except Killed:
                pass
            except BaseException as error:
                process.error = Violation(f"a thread of {process} ended with {error!r}")
                process.error.__cause__ = error

        task = Task(greenlet(run, parent=self._hub), process)
        self._tasks.append(task)
        return task


class Thread:
    """As ``threading.Thread``."""

    def __init__(
        self, cluster: Cluster, target: Callable[..., None], args: tuple[Any, ...] = (), **named: object
    ) -> None:
        self._cluster, self._body = cluster, partial(target, *args)
        self._task: Task | None = None

    def start(self) -> None:
        self._task = self._cluster.spawn(self._body)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.greenlet.dead


class Lock:
    """As ``threading.Lock`` in a ``with`` statement."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._is_held = cluster, False

    def __enter__(self) -> None:
        while self._is_held:
            self._cluster.sleep(1)
        self._is_held = True

    def __exit__(self, *error: object) -> None:
        self._is_held = False


@contextmanager
def clocks_and_threads(cluster: Cluster) -> Iterator[None]:
    """Lead snapshots to the cluster's machines, clocks and threads for the block."""

    def snapshot(*arguments: Any) -> Snapshot:
        return Snapshot(*arguments, _write_lock=Lock(cluster))  # type: ignore[arg-type]

    def machine() -> str:
        assert cluster.current
        return f"machine-{cluster.current.host}"

    with ExitStack() as stack:
        for place, value in {
            "infra.store.checkpoint_sync.threading": SimpleNamespace(Thread=partial(Thread, cluster)),
            "infra.store.checkpoint_sync.machine_identity": machine,
            "infra.store.s3.Snapshot": snapshot,
            "infra.processes.signals.POLL_SECONDS": 60.0,
            "infra.processes.locks.POLL_SECONDS": 5.0,
        }.items():
            stack.enter_context(patch(place, value))
        yield
