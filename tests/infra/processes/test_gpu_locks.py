"""Each GPU belongs to one job at a time, among threads, processes and killed holders."""

import os
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest
from patience import limit

from infra.processes import gpu_locks
from infra.processes.gpu_locks import lock_gpus, visible_gpus

HOLDER = """
import subprocess, sys, time
from infra.processes.gpu_locks import lock_gpus
with lock_gpus([sys.argv[1]], 1, lambda: None) as own:
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=0, pass_fds=[*own.values()])
    print(child.pid, flush=True)
    child.wait()
"""


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three GPU names that only this test uses."""
    monkeypatch.setattr(gpu_locks, "LOCK_FOLDER", tmp_path)
    return [f"{uuid.uuid4()}" for _ in range(3)]


def ignore_wait() -> None: ...


def test_jobs_of_any_size_never_share_a_gpu_and_all_get_one(names: list[str]) -> None:
    busy: set[str] = set()
    guard, shared, sizes = threading.Lock(), [], []

    def job(size: int) -> None:
        with lock_gpus(names, size, ignore_wait) as own:
            with guard:
                shared.extend(busy & set(own))
                busy.update(own)
            time.sleep(0.05)
            with guard:
                busy.difference_update(own)
                sizes.append(len(own))

    threads = [threading.Thread(target=job, args=(size,)) for size in (1, 3, 2, 1, 8, 1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not shared
    assert sorted(sizes) == [1, 1, 1, 2, 2, 3, 3], "a request for more than exist gets all"


def test_a_gpu_of_a_killed_holder_is_free_when_its_job_ends(
    names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the holder uses the machine's lock folder
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, names[0]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout
    int(holder.stdout.readline())
    holder.kill()
    holder.wait()
    waited, acquired = threading.Event(), threading.Event()

    def job() -> None:
        with lock_gpus(names[:1], 1, waited.set):
            acquired.set()

    thread = threading.Thread(target=job)
    thread.start()
    assert waited.wait(limit(2.0)), "the job of the killed one still runs"
    assert not acquired.is_set()
    assert holder.stdin
    holder.stdin.close()  # ends the job
    assert acquired.wait(limit(2.0))
    thread.join(30)


def test_other_users_can_open_a_lock_whatever_the_umask(names: list[str], tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with lock_gpus(names[:1], 1, ignore_wait):
            modes = [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()]
    finally:
        os.umask(before)
    assert modes == [0o644, 0o644]


def test_the_environment_selects_the_visible_gpus() -> None:
    assert visible_gpus({"REPRO_GPUS": "2, 3", "CUDA_VISIBLE_DEVICES": "0"}) == ("2", "3")
    assert visible_gpus({"REPRO_GPUS": "0,0, 1"}) == ("0", "1"), "a GPU named twice is one"
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "MIG-a"}) == ("MIG-a",)
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "-1"}) == visible_gpus({"CUDA_VISIBLE_DEVICES": ""}) == ()
    assert len(visible_gpus({})) == len(list(Path("/dev").glob("nvidia[0-9]*")))
