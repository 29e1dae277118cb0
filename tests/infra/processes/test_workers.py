"""Workers return results in the order of the calls, and a dead worker gives a one-sentence error."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from infra.errors import BadData, JobFailed
from infra.processes.workers import executor

WAITING = """
import os, signal, sys
from infra.processes.workers import executor
if __name__ == "__main__":
    with executor(2) as found:
        print(*found.map(os.getpid, [()] * 2), file=sys.stderr, flush=True)
        signal.pause()
"""


def power(base: int, exponent: int) -> int:
    return base**exponent


def dies(path: Path) -> None:
    path.touch()
    os.kill(os.getpid(), signal.SIGKILL)


def waits_or_dies(folder: Path, number: int) -> None:
    if number == 1:
        dies(folder / "again")


def refuses(message: str) -> None:
    raise BadData(message)


def threads() -> tuple[str, int]:
    return os.environ["POLARS_MAX_THREADS"], os.getpid()


@pytest.mark.parametrize(("workers", "count"), [(1, "7"), (2, "3")])
def test_results_come_in_the_order_of_the_calls_from_processes_with_their_thread_count(
    monkeypatch: pytest.MonkeyPatch, workers: int, count: str
) -> None:
    monkeypatch.setenv("POLARS_MAX_THREADS", "7")
    with executor(workers, threads=3) as found:
        assert list(found.map(power, ((2, n) for n in range(20)))) == [2**n for n in range(20)]
        with pytest.raises(BadData, match="line 3"):
            list(found.map(refuses, [("line 3",)]))
        given, process = next(found.map(threads, [()]))
    assert (given, process == os.getpid()) == (count, workers == 1)
    assert os.environ["POLARS_MAX_THREADS"] == "7"


def test_arguments_are_read_only_as_workers_need_them() -> None:
    requested = []

    def calls() -> Iterator[tuple[int, int]]:
        for n in range(100):
            requested.append(n)
            yield n, 2

    with executor(1) as found:
        results = found.map(power, calls())
        assert next(results) == 0
        assert len(requested) == 2


def test_workers_survive_ctrl_c_and_end_with_a_killed_parent(tmp_path: Path) -> None:
    (script := tmp_path / "waiting.py").write_text(WAITING)
    environment = os.environ | {"PYTHONPATH": f"{Path.cwd()}"}
    with subprocess.Popen([sys.executable, script], stderr=subprocess.PIPE, env=environment) as parent:
        assert parent.stderr
        workers = [psutil.Process(int(word)) for word in {*parent.stderr.readline().split()}]
        for worker in workers:
            worker.send_signal(signal.SIGINT)
        time.sleep(0.2)
        assert all(worker.is_running() for worker in workers)
        parent.kill()
        assert psutil.wait_procs(workers, timeout=60)[1] == []


def test_a_killed_worker_raises_a_retryable_fault(tmp_path: Path) -> None:
    with executor(2) as found, pytest.raises(JobFailed, match="REPRO_WORKERS") as fault:
        list(found.map(dies, [(tmp_path / "started",)]))
    assert (tmp_path / "started").exists()
    assert fault.value.retry
    with executor(2) as found, pytest.raises(JobFailed, match="REPRO_WORKERS"):
        for _ in found.map(waits_or_dies, ((tmp_path, n) for n in range(100))):
            time.sleep(0.5)  # while the parent writes a result, a worker dies: the next call cannot be submitted
