"""Every process of a service, however deep, found by a variable that it inherits.

Prefect starts flow runs in sessions of their own, so neither a process group nor a parent's id names them all.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

VARIABLE = "REPRO_SERVICE"
POLL_SECONDS = 0.1


def process_tag(folder: Path, program: str = "") -> Mapping[str, str]:
    """What to put into the environment of the service's processes, or of one program's."""
    return {VARIABLE: f"{folder}//{program}"}


def folder_of(environment: Mapping[str, str]) -> Path:
    """The folder of the service whose mark ``environment`` carries."""
    return Path(environment[VARIABLE].rpartition("//")[0])


def tagged_pids(folder: Path, program: str = "") -> set[int]:
    """Ids of the living processes that carry the mark, of one program or of all; never this process."""
    wanted = f"{VARIABLE}={folder}//{program}".encode()
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:  # gone, or another user's
                continue
            if any(variable == wanted or (not program and variable.startswith(wanted)) for variable in variables):
                found.add(int(entry.name))
    return found


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal processes; one that is gone is fine."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def end_all(find: Callable[[], set[int]], seconds: float) -> int:
    """Ask what ``find`` finds to end, wait for at most ``seconds``, then insist; gives how many there were."""
    first = find()
    signal_all(first, signal.SIGTERM)
    wait_until_none(find, seconds)
    while left := find():  # what they have started meanwhile goes as well
        signal_all(left, signal.SIGKILL)
        time.sleep(POLL_SECONDS)
    return len(first)


def wait_until_none(find: Callable[[], set[int]], seconds: float) -> None:
    """Wait until ``find`` finds nothing, at most ``seconds``."""
    deadline = time.monotonic() + seconds
    while find() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
