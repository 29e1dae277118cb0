"""Finds all processes of a service, at any depth, by an environment variable that they inherit.

Prefect starts each flow run in its own session, so neither a process group nor a parent id covers all processes.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

VARIABLE = "REPRO_SERVICE"
POLL_SECONDS = 0.1


def process_tag(folder: Path, program: str = "") -> dict[str, str]:
    """Return the environment variable of the service's processes, or of one program's processes."""
    return {VARIABLE: f"{folder}//{program}"}


def folder_of(environment: Mapping[str, str]) -> Path:
    """Return the folder of the service from the tag in ``environment``."""
    return Path(environment[VARIABLE].rpartition("//")[0])


def tagged_pids(folder: Path, program: str = "") -> set[int]:
    """Return the ids of running processes with the tag, of one program or of all, except this process."""
    wanted = f"{VARIABLE}={folder}//{program}".encode()
    pids = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:  # it has ended, or belongs to another user
                continue
            if any(variable == wanted or (not program and variable.startswith(wanted)) for variable in variables):
                pids.add(int(entry.name))
    return pids


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal processes; ignore those that have ended."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_all(find: Callable[[], set[int]], seconds: float) -> int:
    """Send SIGTERM to the processes from ``find``, and SIGKILL after at most ``seconds``; return their number."""
    first = find()
    signal_all(first, signal.SIGTERM)
    wait_until_none(find, seconds)
    while left := find():  # including what they started in the meantime
        signal_all(left, signal.SIGKILL)
        time.sleep(POLL_SECONDS)
    return len(first)


def wait_until_none(find: Callable[[], set[int]], seconds: float) -> None:
    """Wait until ``find`` returns nothing, at most ``seconds``."""
    deadline = time.monotonic() + seconds
    while find() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
