"""Child processes that outlive nobody: groups of their own, ended together, gone when their parent is gone."""

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable

GRACE_SECONDS = 45.0
"""Between SIGTERM and SIGKILL: longer than torchrun itself waits for its ranks."""
PR_SET_PDEATHSIG = 1
SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""For every Python that is started: modules are not searched in its working folder, where a user's ``model.py`` or
``random.py`` would take the place of the real one."""

_libc = ctypes.CDLL(None)


def die_with_parent() -> Callable[[], None]:
    """For ``Popen(preexec_fn=…)``: the child gets SIGTERM when the thread that starts it is gone (SIGKILL included)."""
    parent = os.getpid()

    def prepare() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # the parent died before the call above
            os._exit(1)

    return prepare


def follow_parent() -> None:
    """This process gets SIGTERM when the one that started it, which is not the machine's first, is gone."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == 1:  # it was gone before the call above
        os.kill(os.getpid(), signal.SIGTERM)


def terminate_group(process: subprocess.Popen[bytes]) -> None:
    """Ask the process's whole group to end, wait, then insist."""
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
    """Signal the group that the process leads; none left is fine."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
