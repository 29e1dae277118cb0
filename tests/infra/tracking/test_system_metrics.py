"""Samples of this machine: after a minute, at the update of the job, under MLflow's names."""

import os
import re
from pathlib import Path
from typing import Any

import mlflow
import pytest

from infra.tracking import system_metrics
from infra.tracking.gpu_metrics import GpuMetrics
from infra.tracking.system_metrics import SystemMetrics
from infra.tracking.tracker import Tracker

NOT_SUPPORTED = 3
"""An error of NVML."""


def test_a_short_job_gives_none_and_a_long_one_all_from_its_start(tmp_path: Path) -> None:
    now = 0.0
    metrics = SystemMetrics(tmp_path, lambda: now)
    given = []
    for now in range(0, 81, 5):
        given.append(metrics.rows(done=now * 2))
    assert not any(given[:12]), "no minute has passed"
    assert [row["done"] for row in given[12]] == [20, 40, 60, 80, 100, 120]
    assert [[row["done"] for row in rows] for rows in given[13:]] == [[], [140], [], [160]]


def test_the_samples_are_of_this_machine(tmp_path: Path) -> None:
    now = 0.0
    metrics = SystemMetrics(tmp_path, lambda: now)
    sum(number * number for number in range(2_000_000))  # some ticks of work
    now = 70.0
    (row,) = metrics.rows(done=7)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e6
    assert 0 < row["system/system_memory_usage_megabytes"] < total
    assert 0 < row["system/cpu_utilization_percentage"] <= 100
    assert 0 < row["system/disk_usage_percentage"] < 100
    assert row["system/disk_available_megabytes"] > 0


def test_a_system_that_tells_nothing_gives_no_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "missing"
    for name in ("STAT", "MEMORY"):
        monkeypatch.setattr(system_metrics, name, missing)
    now = 0.0
    metrics = SystemMetrics(missing, lambda: now)
    now = 70.0
    (row,) = metrics.rows(done=1)
    assert {*row} == {"done", "time"}


class Driver:
    """A fake NVML of two GPUs, of which the second reports neither utilisation nor power, as with MIG."""

    def __init__(self, *failing: str) -> None:
        self.failing = failing

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: NOT_SUPPORTED if name in self.failing else getattr(type(self), f"_{name}")(*arguments)

    @staticmethod
    def _nvmlInit_v2() -> int:
        return 0

    @staticmethod
    def _nvmlDeviceGetCount_v2(out: Any) -> int:
        out._obj.value = 2
        return 0

    @staticmethod
    def _nvmlDeviceGetHandleByIndex_v2(number: Any, out: Any) -> int:
        out._obj.value = 100 + number.value
        return 0

    @staticmethod
    def _nvmlDeviceGetMemoryInfo(handle: Any, out: Any) -> int:
        out._obj.total, out._obj.used = 80_000_000_000, (handle.value - 99) * 20_000_000_000
        return 0

    @staticmethod
    def _nvmlDeviceGetUtilizationRates(handle: Any, out: Any) -> int:
        out._obj.gpu = 93
        return 0 if handle.value == 100 else NOT_SUPPORTED

    @staticmethod
    def _nvmlDeviceGetPowerUsage(handle: Any, out: Any) -> int:
        out._obj.value = 350_000
        return 0 if handle.value == 100 else NOT_SUPPORTED

    @staticmethod
    def _nvmlDeviceGetEnforcedPowerLimit(_handle: Any, out: Any) -> int:
        out._obj.value = 700_000
        return 0


def test_each_gpu_has_what_its_driver_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_metrics, "driver", Driver)
    now = 0.0
    metrics = SystemMetrics(tmp_path, lambda: now)
    now = 70.0
    (row,) = metrics.rows(done=1)
    assert {name: value for name, value in row.items() if name.startswith("system/gpu_")} == {
        "system/gpu_0_memory_usage_megabytes": 20_000,
        "system/gpu_0_memory_usage_percentage": 25,
        "system/gpu_0_utilization_percentage": 93,
        "system/gpu_0_power_usage_watts": 350,
        "system/gpu_0_power_usage_percentage": 50,
        "system/gpu_1_memory_usage_megabytes": 40_000,
        "system/gpu_1_memory_usage_percentage": 50,
    }


@pytest.mark.parametrize("library", [None, object(), Driver("nvmlInit_v2"), Driver("nvmlDeviceGetCount_v2")])
def test_without_a_driver_there_is_no_gpu(library: Any) -> None:
    assert GpuMetrics(library).sample() == {}


def test_the_names_are_those_of_mlflow_s_sampler() -> None:
    source = Path(mlflow.__file__).with_name("system_metrics") / "metrics" / "gpu_monitor.py"
    names = {name.replace("gpu_0_", "gpu_{i}_") for name in GpuMetrics(Driver()).sample() if name.startswith("gpu_0_")}
    assert names == {*re.findall(r'f"(gpu_\{i\}_\w+)"', source.read_text())}


def test_mlflow_holds_them_with_the_curves(tmp_path: Path) -> None:
    tracker = Tracker("", tmp_path / "mlflow-artifacts")
    tracker.start("demo", "demo", {}, {})
    run_id = tracker.start_stage("train", "", "k", {})
    tracker.log_rows(run_id, [{"done": 5, "time": 1.0, "loss": 2.0}])
    tracker.log_rows(run_id, [{"done": 5, "time": 2.0, "system/cpu_utilization_percentage": 50.0}])
    tracker.finish("FINISHED")
    (point,) = tracker.client.get_metric_history(run_id, "system/cpu_utilization_percentage")
    assert (point.step, point.value) == (5, 50.0)
    assert "system/cpu_utilization_percentage" not in tracker.client.get_run(tracker.run_id).data.metrics
