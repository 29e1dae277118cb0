"""Processes on a simulated machine: one runs at a time, and faults happen before a chosen one of its system calls.

A process is a greenlet. It runs until it ends, sleeps, or a ``switch`` gives the turn to the next one.
"""

import errno
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from greenlet import greenlet

from simulated.disk import Disk, Node, failure

MAX_CALLS = 60_000
"""System calls of all processes together, after which a run counts as one that does not end."""
CLOCK_JUMPS = [sign * seconds for sign in (-1, 1) for seconds in (1, 3_600, 8 * 86_400, 400 * 86_400)]
"""By how many seconds the clock is set."""


class Killed(BaseException):
    """Unwinds a killed process; none of its system calls has an effect any more."""


class Violation(BaseException):
    """An invariant does not hold. No Exception, so that no tested code catches it."""


@dataclass(frozen=True)
class Fault:
    """``kind`` happens to a process before its system call number ``at``; ``choice`` seeds what is left open."""

    kind: str
    process: int
    at: int
    choice: int = 0


@dataclass
class OpenFile:
    """A file that is open: the lock belongs to it."""

    node: Node


class Process:
    """A process: its open files and what will happen to it."""

    def __init__(self, number: int, body: Callable[[], None], faults: dict[int, Fault]) -> None:
        self.number, self.faults = number, faults
        self.calls = 0
        self.fails = False
        self.dead = False
        self.files: dict[int, OpenFile] = {}
        self.error: BaseException | None = None
        self.disturbed = False
        """Whether a system call of this process was made to fail."""
        self.greenlet = greenlet(lambda: self._run(body))

    def _run(self, body: Callable[[], None]) -> None:
        try:
            body()
        except (Exception, Killed, Violation) as error:
            self.error = error


class Machine:
    """A machine with one disk."""

    def __init__(self, root: str) -> None:
        self.disk = Disk(root)
        self.locks: dict[int, tuple[OpenFile, Process]] = {}
        self.current: Process | None = None
        self.processes: list[Process] = []
        self.log: list[str] = []
        self.now = 1_000_000.0
        self._turn: deque[Process] = deque()
        self._calls = self._idle = 0
        self._next_descriptor = 10**6
        self._powered = True

    # Running

    def run(self, bodies: list[Callable[[], None]], faults: tuple[Fault, ...]) -> list[Process]:
        """Run processes to their ends; raises the Violation that one of them met."""
        self._powered, self._calls, self._idle = True, 0, 0
        self.processes = [
            Process(n, body, {fault.at: fault for fault in faults if fault.process == n})
            for n, body in enumerate(bodies)
        ]
        self._turn = deque(self.processes)
        while self._turn:
            process = self.current = self._turn[0]
            process.greenlet.switch()
            self.current = None
            if isinstance(process.error, Violation):
                self._kill_all()
                raise process.error
            if not self._powered:
                break
            if process.greenlet.dead:
                self._turn.remove(process)
                if self.held_by(process) and not process.dead:
                    raise Violation(f"process {process.number} ended its run and holds a lock")
                self._release(process)
            elif self._turn[0] is process:
                self._turn.rotate(-1)
        if not self._powered:
            self._kill_all()
        return self.processes

    def _kill_all(self) -> None:
        for process in self.processes:
            process.dead, self.current = True, process  # its system calls while it unwinds have no effect
            if process.greenlet and not process.greenlet.dead:
                process.greenlet.throw(Killed)
            self._release(process)
        self._turn.clear()
        self.current = None

    def step(self, what: str = "") -> None:
        """Called before each system call: faults happen here."""
        process = self.current
        if process is None:
            return
        if process.dead:
            raise Killed
        process.calls += 1
        self._calls += 1
        self._idle = 0
        if self._calls > MAX_CALLS:
            raise Violation(f"a run does not end: {MAX_CALLS} system calls")
        fault = process.faults.get(process.calls)
        if fault:
            self._cause(fault, process, what)

    def _cause(self, fault: Fault, process: Process, what: str) -> None:
        self.log.append(f"process {process.number}, call {process.calls}, {what}: {fault.kind}")
        if fault.kind == "switch":
            process.greenlet.parent.switch()
            if process.dead:
                raise Killed
        elif fault.kind == "kill":
            process.dead = True
            raise Killed
        elif fault.kind == "power":
            process.dead, self._powered = True, False
            self.log.append(f"  kept beside what was synced: {self.disk.lose_power(Random(fault.choice))}")
            raise Killed
        elif fault.kind == "clock":
            self.disk.now_ns += Random(fault.choice).choice(CLOCK_JUMPS) * 10**9 + fault.choice
        else:
            process.fails = True

    def time(self) -> float:
        """What ``time.time`` gives; no two calls give the same."""
        self.disk.now_ns += 1_000
        return self.disk.now_ns / 1e9

    def may_fail(self, path: str) -> None:
        """Raise the error of a full disk in a system call that writes, if one is due."""
        if self.current and self.current.fails:
            self.current.fails, self.current.disturbed = False, True
            raise failure(errno.ENOSPC, path)

    def sleep(self, seconds: float) -> None:
        """Give the turn to the others; raises Violation if all only sleep."""
        process = self.current
        assert process
        idle = self._idle
        self.step("sleep")
        self.now += seconds
        self._idle = idle + 1
        if self._idle > 50 * len(self.processes):
            raise Violation("no process goes on: all wait for a lock")
        process.greenlet.parent.switch()
        if process.dead:
            raise Killed

    # Open files and locks

    def opened(self, node: Node) -> int:
        self._next_descriptor += 1
        if self.current:
            self.current.files[self._next_descriptor] = OpenFile(node)
        return self._next_descriptor

    def file(self, descriptor: int) -> OpenFile:
        if self.current is None or descriptor not in self.current.files:
            raise failure(errno.EBADF, f"{descriptor}")
        return self.current.files[descriptor]

    def close(self, descriptor: int) -> None:
        if self.current and (file := self.current.files.pop(descriptor, None)):
            self._unlock(file)

    def try_lock(self, descriptor: int) -> None:
        """What ``fcntl.flock`` does with LOCK_EX and LOCK_NB."""
        file = self.file(descriptor)
        holder = self.locks.get(file.node.inode)
        if holder and holder[0] is not file:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked")
        assert self.current
        self.locks[file.node.inode] = (file, self.current)

    def held_by(self, process: Process) -> list[int]:
        return [inode for inode, (_, holder) in self.locks.items() if holder is process]

    def _unlock(self, file: OpenFile) -> None:
        if (held := self.locks.get(file.node.inode)) and held[0] is file:
            del self.locks[file.node.inode]

    def _release(self, process: Process) -> None:
        """What the kernel does when a process ends."""
        for inode in self.held_by(process):
            del self.locks[inode]
        process.files.clear()

    def observe(self, look: Callable[[], Any]) -> Any:
        """Call a function whose system calls neither count nor fail."""
        current, self.current = self.current, None
        try:
            return look()
        finally:
            self.current = current
