"""Child processes that end with their parent, and process groups that are ended together."""

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

GRACE_SECONDS = 45.0
"""Between SIGTERM and SIGKILL: longer than torchrun itself waits for its ranks."""
PR_SET_PDEATHSIG = 1
SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""For every Python process that is started: no module search in the working folder, where a user's ``model.py`` or
``random.py`` would shadow the real one."""

_libc = ctypes.CDLL(None)


def die_with_parent() -> Callable[[], None]:
    """For ``Popen(preexec_fn=…)``: the child gets SIGTERM when the thread that started it ends, even by SIGKILL."""
    parent = os.getpid()

    def prepare() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # the parent died before the call above
            os._exit(1)

    return prepare


def follow_parent() -> None:
    """Send this process SIGTERM when its parent ends. The parent must not be process 1."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == 1:  # the parent ended before the call above
        os.kill(os.getpid(), signal.SIGTERM)


def stopped_below(pid: int) -> list[int]:
    """Process ``pid`` and its descendants, those that are stopped: by SIGSTOP, by a terminal or by a debugger."""
    children: dict[int, list[int]] = {}
    stopped = set()
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = file.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it has ended
            continue
        children.setdefault(int(parent), []).append(int(file.parent.name))
        if state in "Tt":
            stopped.add(int(file.parent.name))
    found = []
    left = [pid]
    while left:
        each = left.pop()
        found += [each] if each in stopped else []
        left += children.get(each, ())
    return sorted(found)


def terminate_group(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to the process's group, wait GRACE_SECONDS, then send SIGKILL."""
    if process.poll() is None:
        signal_group(process, signal.SIGTERM)
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            signal_group(process, signal.SIGKILL)
            process.wait()


def signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal the group that the process leads, if it still exists."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
