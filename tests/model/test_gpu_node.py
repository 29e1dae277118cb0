"""A GPU node has torch and the libraries of ``model``: the tests for it need no others."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ABSENT = (
    "polars",
    "prefect",
    "mlflow",
    "cyclopts",
    "moto",
    "botocore",
    "s3fs",
    "fsspec",
    "hypothesis",
    "optuna",
    "httpx",
)
COLLECT = f"""
import sys
sys.modules |= dict.fromkeys({ABSENT})  # importing them raises ModuleNotFoundError
import pytest
sys.exit(pytest.main(["-m", "gpu", "--collect-only", "-p", "no:cacheprovider"]))
"""


def test_the_gpu_tests_need_neither_polars_nor_prefect_nor_mlflow() -> None:
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-c", COLLECT]
    made = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    assert "tests/model/test_gpu.py::" in made.stdout
