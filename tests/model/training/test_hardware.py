"""Tests of hardware metrics: values that the driver reports are read, others are omitted."""

import ctypes
from typing import Any

import pytest

from model.training.flops import Work, peak_flops
from model.training.hardware import GpuMeter

NOT_SUPPORTED = 3


class FakeGpus:
    """Two GPUs, 1 and 2, at 100 W and 300 W, and energies that a test sets.

    The library lacks the functions ``missing``.
    """

    def __init__(self, *missing: str, divided: bool = False) -> None:
        self.missing = missing
        self.divided = divided
        self.millijoules = {1: 5_000_000, 2: 9_000_000_000_000}

    def __getattr__(self, name: str) -> Any:
        values = {
            "nvmlDeviceGetPowerUsage": lambda gpu: gpu * 200_000 - 100_000,
            "nvmlDeviceGetTotalEnergyConsumption": lambda gpu: self.millijoules[gpu],
        }
        functions = {
            "nvmlInit_v2": lambda: 0,
            "nvmlDeviceGetHandleByUUID": find,
            "nvmlDeviceGetMigMode": self.partition,
            **{name: lambda gpu, out, read=read: put(out, read(gpu.value)) for name, read in values.items()},
        }
        if name in self.missing or name not in functions:
            raise AttributeError(name)
        return functions[name]

    def partition(self, _gpu: ctypes.c_void_p, on: Any, _pending: Any) -> int:
        return put(on, 1) if self.divided else NOT_SUPPORTED


def put(out: Any, value: int) -> int:
    out._obj.value = value
    return 0


def find(uuid: bytes, out: Any) -> int:
    numbers = {b"GPU-a": 1, b"GPU-b": 2}
    return put(out, numbers[uuid]) if uuid in numbers else NOT_SUPPORTED


def test_power_and_energy_are_sums_over_the_gpus() -> None:
    driver = FakeGpus()
    gpus = GpuMeter(["GPU-a", "GPU-b"], 1.5, driver)
    assert gpus.read() == {"gpu_watts": 400.0, "gpu_kwh": 1.5}
    driver.millijoules = {1: 5_000_000 + 3_600_000_000, 2: 9_000_000_000_000 + 1_800_000_000}
    assert gpus.read()["gpu_kwh"] == pytest.approx(1.5 + 1.0 + 0.5)
    second = GpuMeter(["GPU-b"], gpus.kwh(), driver)
    assert second.read() == {"gpu_watts": 300.0, "gpu_kwh": pytest.approx(3.0)}


@pytest.mark.parametrize(
    ("driver", "uuids", "names"),
    [
        (FakeGpus(), ["GPU-a", "GPU-other"], []),
        (FakeGpus(divided=True), ["GPU-a"], []),
        (FakeGpus("nvmlDeviceGetTotalEnergyConsumption"), ["GPU-a"], ["gpu_watts"]),
        (FakeGpus("nvmlDeviceGetPowerUsage"), ["GPU-a"], ["gpu_kwh"]),
    ],
)
def test_metrics_that_a_driver_does_not_report_are_omitted(driver: Any, uuids: list[str], names: list[str]) -> None:
    gpus = GpuMeter(uuids, 0.25, driver)
    assert list(gpus.read()) == names
    assert gpus.kwh() == 0.25


def test_utilisation_is_a_share_of_a_known_peak() -> None:
    peak = peak_flops("NVIDIA H100 80GB HBM3")
    assert Work(peak / 2, peak).mfu(ranks=2) == {"mfu": 0.25}
    assert Work(2e14, peak_flops("cpu")).mfu(ranks=1) == {}
