"""The numerical tests with fewer instructions than this CPU has, as torch and oneDNN compute on others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

NUMERICAL = (
    *("ctranslate2", "huggingface", "linear", "lines", "attention_maps", "loss", "packing", "probes", "distributed"),
    *("reference", "sampling", "beam_search", "train", "transformer", "translate", "translator", "validation"),
)
"""The tests of this folder whose outcome depends on rounding."""


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "setting", ["ATEN_CPU_CAPABILITY=default", "ATEN_CPU_CAPABILITY=avx2", "ONEDNN_MAX_CPU_ISA=AVX2"]
)
def test_the_numerical_tests_pass_with_fewer_instructions(setting: str) -> None:
    files = [str(next(Path(__file__).parent.rglob(f"test_{name}.py"))) for name in NUMERICAL]
    name, value = setting.split("=")
    # -n0: one process; torch reads these variables once, when it is loaded.
    command = [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", *files]
    environment = {key: content for key, content in os.environ.items() if not key.startswith("PYTEST_")} | {name: value}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1400)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
