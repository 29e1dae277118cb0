"""Starts child processes that end with their parent, and ends process groups."""

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

GRACE_SECONDS = 45.0
"""Seconds between SIGTERM and SIGKILL: longer than torchrun itself waits for its ranks."""
PR_SET_PDEATHSIG = 1
PROJECT_ROOT = Path(__file__).resolve().parents[2]
"""The folder of this project's packages: the checkout or the installed ones."""
SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""Keeps every started Python process from importing modules of the working folder. A user's ``model.py`` or
``random.py`` there would shadow the real one."""

LAST_BYTES = 4000
STARTERS = ("srun: ", "slurmstepd: ", "=====")
"""Prefixes of log lines that do not come from the job: SLURM's programs, or torchrun below its report."""

_libc = ctypes.CDLL(None)


def python_path(environment: Mapping[str, str]) -> str:
    """Return ``PYTHONPATH`` for a child: this project, then the value in ``environment``."""
    return os.pathsep.join(filter(None, [str(PROJECT_ROOT), environment.get("PYTHONPATH", "")]))


def die_with_parent() -> Callable[[], None]:
    """Return a ``preexec_fn``: when the thread that started the child ends, even by SIGKILL, the child gets SIGTERM."""
    return partial(die_with, os.getpid())


def die_with(parent: int) -> None:
    """Get SIGTERM when the thread of ``parent`` that started this process ends."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # the parent died before the call above
        os._exit(1)


def start(
    words: Sequence[str], output: IO[bytes], environment: Mapping[str, str], *, outlives: bool = False, **options: Any
) -> "subprocess.Popen[bytes]":
    """Start a program without input in its own session; it ends with this process unless ``outlives`` is set."""
    return subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=None if outlives else die_with_parent(),
        env=environment,
        **options,
    )


def follow_parent() -> None:
    """Send this process SIGTERM when its parent ends. The parent must not be process 1."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == 1:  # the parent ended before the call above
        os.kill(os.getpid(), signal.SIGTERM)


def terminate_group(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to the process's group, wait GRACE_SECONDS, then send SIGKILL."""
    if process.poll() is None:
        signal_group(process, signal.SIGTERM)
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_SECONDS)
        finally:
            signal_group(process, signal.SIGKILL)
            process.wait()


def signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal the group that the process leads, if it still exists."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def last_line(log: Path, begin: int = 0) -> str:
    """Return a process's last line in a log after byte ``begin``, at most 300 characters; empty if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(begin)
            lines = [line.strip() for line in file.read()[-LAST_BYTES:].decode(errors="replace").splitlines()]
    except FileNotFoundError:
        return ""
    lines = [line for line in lines if line]
    of_process = [line for line in lines if not line.startswith(STARTERS)]
    return next(reversed(of_process or lines), "")[:300]
