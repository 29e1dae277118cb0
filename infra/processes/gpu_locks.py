"""Gives each GPU of this machine to one job at a time, by file locks that end with the processes that hold them.

All users and roots of a machine share the locks. A container that does not mount the machine's lock folder has its own.
A job over ssh takes no lock.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from infra.processes.locks import try_lock, wait_for

LOCK_FOLDER = Path("/run/lock")


def visible_gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the GPUs that a process with this environment may use: REPRO_GPUS, CUDA_VISIBLE_DEVICES, else all."""
    for variable in ("REPRO_GPUS", "CUDA_VISIBLE_DEVICES"):
        # An empty CUDA_VISIBLE_DEVICES means no GPU, to CUDA too.
        if environment.get(variable) or (variable != "REPRO_GPUS" and variable in environment):
            names = (name.strip() for name in environment[variable].split(","))
            return tuple(dict.fromkeys(name for name in names if name not in ("", "-1")))
    devices = [path for path in Path("/dev").glob("nvidia*") if path.name.removeprefix("nvidia").isdigit()]
    return tuple(str(number) for number in range(len(devices)))  # CUDA counts what it sees, whatever the device's name


@contextmanager
def lock_gpus(gpus: Sequence[str], count: int, on_wait: Callable[[], None]) -> Iterator[dict[str, int]]:
    """Lock ``count`` of the GPUs, or all if there are fewer, for the block; yields the descriptor of each lock by GPU.

    Waits while too few are free, and calls ``on_wait`` once a minute. Only one waiting job collects GPUs at a time, so
    jobs with one GPU cannot starve a job that needs many.
    """
    wanted = min(count, len(gpus))
    held: dict[str, int] = {}

    def holds_all() -> bool:
        for name in gpus:
            if name not in held and len(held) < wanted:
                descriptor = _open(name)
                if try_lock(descriptor):
                    held[name] = descriptor
                else:
                    os.close(descriptor)
        return len(held) == wanted

    try:
        if wanted:
            turn = _open("turn")
            try:
                wait_for(lambda: try_lock(turn) and holds_all(), on_wait)
            finally:
                os.close(turn)
        yield held
    finally:
        for descriptor in held.values():
            os.close(descriptor)


def _open(name: str) -> int:
    folder = LOCK_FOLDER if os.access(LOCK_FOLDER, os.W_OK) else Path("/tmp")
    path = folder / f"repro-gpu-{name.replace('/', '-')}.lock"
    try:
        return os.open(path, os.O_RDONLY)  # works on another user's file too: a lock needs no write permission
    except FileNotFoundError:
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT)
        os.fchmod(descriptor, 0o644)  # whatever the umask: other users must be able to open it
        return descriptor
