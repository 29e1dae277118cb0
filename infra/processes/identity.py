"""Who holds a run: the identity of a process, and whether it still lives.

Comes in and goes out: one word, written beside what the process is responsible for (a record, a run in MLflow or in
Prefect). A process id alone is given to somebody else sooner or later; together with the start of the machine and the
start of the process it never is. Knows nothing of runs.
"""

import hashlib
import os
import socket
from functools import cache
from pathlib import Path
from typing import Literal

ProcessState = Literal["alive", "gone", "elsewhere"]


def process_identity(pid: int = 0) -> str:
    """``machine/boot/namespace/pid/start`` of a process, of this one for 0; raises ProcessLookupError."""
    pid = pid or os.getpid()
    if not (started := _started(pid)):
        raise ProcessLookupError(f"no process {pid}")
    return "/".join((*_here(), f"{pid}", started))


def process_state(word: str) -> ProcessState:
    """Whether the process of ``word`` lives; ``elsewhere`` where this process cannot know (so for a broken word)."""
    parts = word.split("/")
    if len(parts) != 5 or not parts[3].isdigit():
        return "elsewhere"
    machine, boot, namespace, pid, started = parts
    if machine != _here()[0]:
        return "elsewhere"
    if boot != _here()[1]:
        return "gone"
    if namespace != _here()[2]:
        return "elsewhere"
    return "alive" if _started(int(pid)) == started else "gone"


@cache
def _here() -> tuple[str, str, str]:
    """This machine, its present boot and the process namespace, as containers have one of their own."""
    try:
        number = Path("/etc/machine-id").read_text().strip()
    except OSError:
        number = ""
    # Copies of one image may share a host's name or its number; hardly both.
    machine = hashlib.sha256(f"{socket.gethostname()} {number}".encode()).hexdigest()[:12]
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return machine, boot, f"{os.stat('/proc/self/ns/pid').st_ino}"  # noqa: PTH116


def _started(pid: int) -> str:
    """Clock ticks between the boot and the start of a process; empty for one that is gone, or only not yet reaped."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if words[0] in "ZX" else words[19]
