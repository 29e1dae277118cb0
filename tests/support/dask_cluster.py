"""A real Dask cluster of two worker processes, one of which is killed while it works."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.processes.children import die_with_parent

REPOSITORY = Path(__file__).resolve().parents[2]

SLOW = """
import os, sys, time
sys.path[:0] = {path!r}
import importlib
kind = getattr(importlib.import_module({module!r}), {kind!r})
if not hasattr(kind, "at_first"):  # Dask reads this more than once
    kind.at_first = getattr(kind, {method!r})
def slowly(self, *rest):
    # The first worker to come here says who it is, and is killed while it works.
    try:
        told = os.open({told!r}, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return kind.at_first(self, *rest)
    os.write(told, str(os.getpid()).encode())
    os.close(told)
    time.sleep(600)
setattr(kind, {method!r}, slowly)
"""


@contextmanager
def losing_a_worker(folder: Path, module: str, kind: str, method: str) -> Iterator[str]:
    """The scheduler's address. The first call of this method kills the worker that does it; at the end it has."""
    pytest.importorskip("distributed")
    folder.mkdir()
    told, address, preload = folder / "told", folder / "scheduler.json", folder / "slow.py"
    preload.write_text(SLOW.format(path=[str(REPOSITORY)], told=str(told), module=module, kind=kind, method=method))
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    started: list[subprocess.Popen[bytes]] = []
    killed: list[int] = []

    def start(*words: str) -> None:
        command = [sys.executable, "-m", "distributed.cli." + words[0], *words[1:]]
        started.append(subprocess.Popen(command, env=environment, preexec_fn=die_with_parent(), cwd=folder))

    def until(holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def kill() -> None:
        while not (told.exists() and told.read_text()):
            time.sleep(0.05)
        killed.append(int(told.read_text()))
        os.kill(killed[0], signal.SIGKILL)

    try:
        start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", f"--scheduler-file={address}")
        until(address.exists)
        for name in ("one", "two"):
            words = ("--no-dashboard", "--no-nanny", "--local-directory=.", "--nthreads=1", f"--name={name}")
            start("dask_worker", f"--scheduler-file={address}", *words, f"--preload={preload}")
        from distributed import Client

        with Client(scheduler_file=str(address), set_as_default=False) as client:
            client.wait_for_workers(2, timeout=120)
        threading.Thread(target=kill, daemon=True).start()
        yield json.loads(address.read_text())["address"]
        assert killed
    finally:
        for process in started:
            process.kill()
            process.wait()
