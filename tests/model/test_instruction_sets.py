"""The numerical tests with fewer instructions than this CPU has, as torch and oneDNN compute on other CPUs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

NUMERICAL = (
    "network/test_attention_maps.py",
    "network/test_layers.py",
    "network/test_transformer.py",
    "data/test_packing.py",
    "decoding/test_beam_search.py",
    "decoding/test_translator.py",
    "training/test_loss.py",
    "training/test_probes.py",
    "test_train.py::test_micro_batches_add_up_to_the_batch",
)
"""The tests of this folder whose outcome depends on rounding, without the long trainings."""
LIMIT_SECONDS = 1500


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting", ["ATEN_CPU_CAPABILITY=default", "ATEN_CPU_CAPABILITY=avx2", "ONEDNN_MAX_CPU_ISA=AVX2"]
)
def test_the_numerical_tests_pass_with_fewer_instructions(setting: str) -> None:
    # In a process of its own, because torch reads the variable once, when it is loaded.
    name, value = setting.split("=")
    inherited = {key: content for key, content in os.environ.items() if not key.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *NUMERICAL]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parent,
        env=inherited | {name: value, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
