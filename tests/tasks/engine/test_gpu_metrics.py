"""Samples of GPUs: what the driver reports of each, under MLflow's names."""

import re
from pathlib import Path
from typing import Any

import mlflow
import pytest
from fake_gpus import FakeGpus

from infra.tracking.system_metrics import SystemMetrics
from model.training.gpu_driver import GpuDriver
from tasks.engine.jobs import gpu_samples


def test_each_gpu_has_what_its_driver_reports(tmp_path: Path) -> None:
    # A part of a divided GPU reports neither of these two.
    gpus = FakeGpus(silent=("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPowerUsage"))
    now = 0.0
    metrics = SystemMetrics(tmp_path, lambda: gpu_samples(GpuDriver(gpus)), clock=lambda: now)
    now = 70.0
    (row,) = metrics.rows(done=1)
    assert {name: value for name, value in row.items() if name.startswith("system/gpu_")} == {
        "system/gpu_0_memory_usage_megabytes": 20_000,
        "system/gpu_0_memory_usage_percentage": 25,
        "system/gpu_0_utilization_percentage": 93,
        "system/gpu_0_power_usage_watts": 100,
        "system/gpu_0_power_usage_percentage": 14.3,
        "system/gpu_1_memory_usage_megabytes": 40_000,
        "system/gpu_1_memory_usage_percentage": 50,
    }


@pytest.mark.parametrize("library", [None, object(), FakeGpus("nvmlInit_v2"), FakeGpus("nvmlDeviceGetCount_v2")])
def test_without_a_driver_there_is_no_gpu(library: Any) -> None:
    assert gpu_samples(GpuDriver(library)) == {}


def test_the_names_are_those_of_mlflow_s_sampler() -> None:
    source = Path(mlflow.__file__).with_name("system_metrics") / "metrics" / "gpu_monitor.py"
    sample = gpu_samples(GpuDriver(FakeGpus()))
    names = {name.replace("gpu_0_", "gpu_{i}_") for name in sample if name.startswith("gpu_0_")}
    assert names == {*re.findall(r'f"(gpu_\{i\}_\w+)"', source.read_text())}
