"""Freed memory is reused; threads wait briefly unless the user says how; a busy machine is named."""

import subprocess
import sys
from pathlib import Path

import pytest

from infra.launch.job import JobSpec, variables
from infra.processes import compute

REPOSITORY = Path(__file__).resolve().parents[3]
FAULTS = """
import resource, sys, threading
from infra.processes.compute import keep_pages
if sys.argv[1] == "keep":
    keep_pages()
def work():
    for _ in range(3):
        bytearray(36_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        bytes(bytearray(b"x") * 36_000_000)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="NOT RUN: only Linux has this malloc")
def test_large_freed_blocks_are_reused() -> None:
    faults = {}
    for how in ("keep", "leave"):
        done = subprocess.run(
            [sys.executable, "-c", FAULTS, how], capture_output=True, text=True, cwd=REPOSITORY, check=True
        )
        faults[how] = int(done.stdout)
    assert faults["keep"] < faults["leave"] / 5, faults


@pytest.mark.parametrize("chosen", [{}, {"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "active"}])
def test_threads_of_a_job_wait_briefly_or_as_the_user_says(
    chosen: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in compute.WAITING:
        monkeypatch.delenv(name, raising=False)
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    expected = chosen or {"GOMP_SPINCOUNT": compute.SPIN_COUNT}
    job = variables(JobSpec("model.train", {}, {}, tmp_path, {}, threads=2))
    assert {name: job[name] for name in compute.WAITING if name in job} == expected
