"""Tests of hardware metrics: values that the driver reports are read, others are omitted."""

from typing import Any

import pytest
from fake_gpus import FakeGpus

from model.training.flops import Work, peak_flops
from model.training.gpu_driver import Gpu, GpuDriver
from model.training.hardware import GpuEnergyMeter


def found(library: Any, *uuids: str) -> list[Gpu | None]:
    driver = GpuDriver(library)
    return [driver.by_uuid(uuid) for uuid in uuids]


def test_power_and_energy_are_sums_over_the_gpus() -> None:
    driver = FakeGpus()
    gpus = GpuEnergyMeter(found(driver, "GPU-a", "GPU-b"), used_kwh=1.5)
    assert gpus.read() == {"gpu_watts": 400.0, "gpu_kwh": 1.5}
    driver.millijoules = {1: 5_000_000 + 3_600_000_000, 2: 9_000_000_000_000 + 1_800_000_000}
    assert gpus.read()["gpu_kwh"] == pytest.approx(1.5 + 1.0 + 0.5)
    second = GpuEnergyMeter(found(driver, "GPU-b"), gpus.kwh())
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
    gpus = GpuEnergyMeter(found(driver, *uuids), used_kwh=0.25)
    assert list(gpus.read()) == names
    assert gpus.kwh() == 0.25


def test_utilisation_is_a_share_of_a_known_peak() -> None:
    peak = peak_flops("NVIDIA H100 80GB HBM3")
    assert Work(peak / 2, peak).mfu(ranks=2) == {"mfu": 0.25}
    assert Work(2e14, peak_flops("cpu")).mfu(ranks=1) == {}
