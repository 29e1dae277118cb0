"""Gives each process a unique identity, and finds whether that process still runs.

The identity is one string, stored in what the process is responsible for (a record, a run in MLflow or Prefect). The
system reuses process ids; with the machine's boot and the start time of the process the identity is unique.
"""

import hashlib
import os
import socket
from functools import cache
from pathlib import Path
from typing import Literal

ProcessState = Literal["alive", "gone", "elsewhere"]


def process_identity(pid: int = 0) -> str:
    """Return ``machine/boot/namespace/pid/start`` of a process (0: this one). Raises ProcessLookupError if none."""
    pid = pid or os.getpid()
    if not (started := started_ticks(pid)):
        raise ProcessLookupError(f"no process {pid}")
    return "/".join((*_here(), f"{pid}", started))


def machine_identity() -> str:
    """Return a word that all processes of this machine share. A container with its own host name is a machine."""
    return _here()[0]


def process_state(word: str) -> ProcessState:
    """Whether the process of an identity runs; ``elsewhere`` if unknown here, or if the identity is malformed."""
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
    return "alive" if started_ticks(int(pid)) == started else "gone"


@cache
def _here() -> tuple[str, str, str]:
    """Return this machine, its current boot and the process namespace, which differs between containers."""
    try:
        number = Path("/etc/machine-id").read_text().strip()
    except OSError:
        number = ""
    # Copies of one image may share the host name or the machine id, but rarely both.
    machine = hashlib.sha256(f"{socket.gethostname()} {number}".encode()).hexdigest()[:12]
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return machine, boot, f"{os.stat('/proc/self/ns/pid').st_ino}"  # noqa: PTH116


def started_ticks(pid: int) -> str:
    """Return the clock ticks from boot to the start of a process; empty if it has ended, reaped or not."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if words[0] in "ZX" else words[19]
