"""Freed memory stays with the process and is reused; otherwise each large block would need new pages."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
FAULTS = """
import resource, sys, threading
from infra.processes.malloc import keep_pages
if sys.argv[1] == "keep":
    keep_pages()
def work():
    for _ in range(3):
        bytearray(64_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        bytes(bytearray(b"x") * 64_000_000)
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
