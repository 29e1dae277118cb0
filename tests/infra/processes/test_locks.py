"""File locks: one holder, a waiter that learns who holds it, and release when the holder dies."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from infra.processes import locks
from infra.processes.locks import file_lock, is_locked, lock_holder, try_file_lock

HOLD = """
import sys, pathlib
from infra.processes.locks import file_lock
with file_lock(pathlib.Path(sys.argv[1]), print, " (at work)"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_waiter_learns_the_holder_and_acquires_after_its_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "locks" / "a.lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout
    assert holder.stdout.readline() == b"held\n"
    waited: list[str] = []

    def waiting(who: str) -> None:
        waited.append(who)
        if len(waited) == 2:
            holder.kill()

    monkeypatch.setattr(locks, "REMINDER_SECONDS", 0.2)
    with file_lock(lock, waiting):
        assert len(waited) == 2, "it is reminded"
        assert waited[0] == waited[1] == f"process {holder.pid} on {socket.gethostname()} (at work)"
        assert lock_holder(lock).startswith(f"process {os.getpid()} ")
    assert lock_holder(lock) == ""
    holder.wait()
    holder.stdout.close()


def test_looking_at_a_lock_creates_no_file_and_takes_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    assert not path.exists()
    with try_file_lock(path) as free:
        assert free
        assert is_locked(path)
    assert not is_locked(path)
    with try_file_lock(path) as free:
        assert free


def test_a_lock_of_another_user_can_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def refuse_to_write(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_ACCMODE:
            raise PermissionError(path)
        return opened(path, flags, mode)

    with try_file_lock(tmp_path / "lock"):
        monkeypatch.setattr(os, "open", refuse_to_write)
        assert is_locked(tmp_path / "lock")
    assert not is_locked(tmp_path / "lock")
