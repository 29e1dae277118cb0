"""GPUs of this machine, each given to one job at a time: kernel locks that vanish with the processes that hold them.

Comes in: which GPUs there are and how many a job wants; goes out: those that are its own, and the locks on them. All
users and roots of a machine share the locks; a container that does not see the machine's lock folder has its own.
"""

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.processes import signals

POLL_SECONDS = 0.2
LOCK_FOLDER = Path("/run/lock")


@dataclass(frozen=True)
class GpuLocks:
    """GPUs by the names that CUDA_VISIBLE_DEVICES takes, and descriptors of the locks on them."""

    names: tuple[str, ...] = ()
    locks: tuple[int, ...] = ()


def visible_gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The GPUs that a process with this environment may use: by REPRO_GPUS, by CUDA_VISIBLE_DEVICES, or all."""
    for variable in ("REPRO_GPUS", "CUDA_VISIBLE_DEVICES"):
        if variable in environment:
            return tuple(name.strip() for name in environment[variable].split(",") if name.strip() not in ("", "-1"))
    devices = [path for path in Path("/dev").glob("nvidia*") if path.name.removeprefix("nvidia").isdigit()]
    return tuple(str(number) for number in range(len(devices)))  # CUDA counts what it sees, whatever the device's name


@contextmanager
def lock_gpus(gpus: Sequence[str], count: int, on_wait: Callable[[], None]) -> Iterator[GpuLocks]:
    """Hold ``count`` of the GPUs, or all where there are fewer, for the length of the block.

    While too few are free, waits, and calls ``on_wait`` once. Who waits first is first: a job that wants many is not
    passed for ever by those that want one.
    """
    wanted = min(count, len(gpus))
    with contextlib.ExitStack() as stack:
        if not wanted:
            yield GpuLocks()
            return
        waiting = False
        held: dict[str, int] = {}

        def pause() -> None:
            nonlocal waiting
            if not waiting:
                on_wait()
            waiting = True
            signals.check()
            time.sleep(POLL_SECONDS)

        with contextlib.ExitStack() as turn:
            first = _open("turn")
            turn.callback(os.close, first)
            while not _locked(first):
                pause()
            while True:
                for name in gpus:
                    if name not in held and len(held) < wanted:
                        descriptor = _open(name)
                        if _locked(descriptor):
                            held[name] = descriptor
                            stack.callback(os.close, descriptor)
                        else:
                            os.close(descriptor)
                if len(held) == wanted:
                    break
                pause()
        yield GpuLocks(tuple(held), tuple(held.values()))


def _open(name: str) -> int:
    folder = LOCK_FOLDER if os.access(LOCK_FOLDER, os.W_OK) else Path(tempfile.gettempdir())
    path = folder / f"repro-gpu-{name.replace('/', '-')}.lock"
    try:
        return os.open(path, os.O_RDONLY)  # somebody else's file too: a lock needs no right to write
    except FileNotFoundError:
        return os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
