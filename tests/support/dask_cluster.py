"""A real Dask cluster of two worker processes, one of which is killed while it works."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from services import wait_for

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
    # The first worker that gets here writes its process id and is killed while it works.
    try:
        file = os.open({victim!r}, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return kind.at_first(self, *rest)
    os.write(file, str(os.getpid()).encode())
    os.close(file)
    time.sleep(600)
setattr(kind, {method!r}, slowly)
"""


@contextmanager
def losing_a_worker(folder: Path, module: str, kind: str, method: str) -> Iterator[str]:
    """Yield the scheduler's address. The worker that first calls this method is killed."""
    pytest.importorskip("distributed")
    folder.mkdir()
    victim, address, preload = folder / "victim", folder / "scheduler.json", folder / "slow.py"
    preload.write_text(SLOW.format(path=[str(REPOSITORY)], victim=str(victim), module=module, kind=kind, method=method))
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    started: list[subprocess.Popen[bytes]] = []
    killed: list[int] = []

    def start(*words: str) -> None:
        command = [sys.executable, "-m", "distributed.cli." + words[0], *words[1:]]
        started.append(subprocess.Popen(command, env=environment, preexec_fn=die_with_parent(), cwd=folder))

    def kill() -> None:
        wait_for(lambda: victim.exists() and victim.read_text())
        killed.append(int(victim.read_text()))
        os.kill(killed[0], signal.SIGKILL)

    try:
        start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", f"--scheduler-file={address}")
        wait_for(address.exists)
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
