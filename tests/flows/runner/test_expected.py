"""The comparison of a run with strict numerics with ``flows/runs/expected.json``."""

import hashlib
import os
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from sealing import FILES, sealed

from flows.commands.options import RunOptions
from flows.inspection.check import compare_files
from flows.runs import DEMO
from flows.runs.overrides import STRICT_NUMERICS, override
from flows.runs.recorded_results import recorded_sums
from infra.store.local import LocalStore
from tasks.engine.planner import StageResult

SUM = hashlib.sha256(FILES["a.txt"]).hexdigest()


def test_a_run_says_whether_its_files_are_the_expected_ones(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    sealed(store)
    rows = [StageResult("clean", "", "k1", "completed"), StageResult("score", "dev", "k2", "miss")]
    same = [*compare_files(rows, store, {"clean": {"a.txt": SUM}, "score dev": {"a.txt": SUM}}, "strict numerics")]
    assert same == [("a.txt of clean is as recorded of strict numerics", True)]
    for other in ({"a.txt": "0" * 64}, {"missing.txt": SUM}):
        [(said, fits)] = compare_files(rows, store, {"clean": other}, "strict numerics")
        assert (said.endswith("of clean differs from the record of strict numerics"), fits) == (True, False)


def test_sums_are_expected_of_the_strict_demo_alone() -> None:
    strict = override(DEMO, STRICT_NUMERICS)
    assert recorded_sums(strict).keys() == {"average", "translate dev", "translate test"}
    assert recorded_sums(DEMO) == {}
    assert recorded_sums(replace(strict, training=replace(strict.training, seed=2))) == {}
    assert recorded_sums(override(DEMO, STRICT_NUMERICS[:1])) == {}


def test_strict_numerics_stands_for_two_overrides() -> None:
    asked = RunOptions("demo", overrides=("training.seed=2",))
    strict = RunOptions("demo", overrides=("training.seed=2",), strict_numerics=True)
    run = strict.request().resolve().run
    assert (run.training.seed, run.training.numerics, run.decoding.numerics) == (2, "strict", "strict")
    run = asked.request().resolve().run
    assert (run.training.seed, run.training.numerics, run.decoding.numerics) == (2, "fast", "fast")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(platform.machine() != "x86_64", reason="strict numerics is promised for x86 alone")
def test_the_strict_demo_gives_the_expected_sums_with_two_ranks(tmp_path: Path) -> None:
    # expected.json was made with one rank on an AVX-512 machine.
    other_cpu = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("repro")), "run", "demo", "--until", "translate", "--strict-numerics"],
        env=os.environ | other_cpu | {"REPRO_ROOT": str(tmp_path / "root"), "REPRO_RANKS": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("is as recorded of strict numerics") == 3
