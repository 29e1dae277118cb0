"""A clock that jumps by a year forward and then a day back, while a run computes: nothing is lost or made again."""

import json
import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest
from services import artifact_digests
from small_pipeline import run_small, start_small

from flows.commands.gc import gc
from flows.runner.interrupted import unfinished
from infra.site import Site

pytestmark = pytest.mark.slow
DAY = 24 * 3600
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("CLOCK_OFFSET"), O_RDONLY);
    offset = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(clock, now);
    if (clock == CLOCK_REALTIME && offset != MAP_FAILED) now->tv_sec += *offset;
    return status;
}
"""
"""Replaces libc's clock of day by one that is ahead by the seconds in a file."""


def test_a_clock_that_jumps_while_a_run_computes(
    mirror: Path, finished_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which("cc"):
        pytest.skip("NOT RUN: a C compiler is missing; apt-get install gcc")
    library, source, offset = (tmp_path / name for name in ("clock.so", "clock.c", "offset"))
    source.write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    offset.write_bytes(struct.pack("q", 0))
    variables = {"LD_PRELOAD": f"{library}", "CLOCK_OFFSET": f"{offset}"}

    def jump(days: int) -> None:
        with offset.open("r+b") as file:  # in place: the processes map it
            file.write(struct.pack("q", days * DAY))

    root = tmp_path / "repro"
    with start_small(mirror, root, variables=variables) as run:
        for pattern, days in (("clean/*/manifest.json", 365), ("train/*", -1), ("average/*", 365)):
            while not list(root.glob(pattern)):
                assert run.poll() is None, run.stderr and run.stderr.read()
                time.sleep(0.002)
            jump(days)
        out, said = run.communicate(timeout=3000)
    assert run.returncode == 0, said
    assert {state for _, _, state in json.loads(out)} == {"completed"}
    assert artifact_digests(root) == artifact_digests(finished_root)
    made = [json.loads(path.read_text())["manifest"]["made"]["at"] for path in root.glob("*/*/manifest.json")]
    assert len({f"{at}"[:4] for at in made}) == 2, "the clock really jumped"
    begun = sorted(path.stem for path in (root / "runs" / "small").iterdir())

    monkeypatch.setattr(time, "time", lambda clock=time.time: clock() - DAY)
    assert unfinished(Site.named()) == []
    gc(delete=True)
    assert {row.state for row in run_small().rows} == {"cached"}, "nothing was collected, everything is a hit"
    assert sorted(path.stem for path in (root / "runs" / "small").iterdir())[: len(begun)] == begun
