"""Tests of hardware metrics: values that the driver reports are read, others are omitted."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from fake_gpus import FakeGpus
from small_training import TRAINING, rows, run, write_job

from model.training import hardware
from model.training.flops import Work, peak_flops
from model.training.gpu_driver import Gpu, GpuDriver
from model.training.hardware import GpuEnergyMeter
from tests.model.test_train import end_after


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
        (object(), [], []),
        (object(), ["GPU-a"], []),
        (FakeGpus(), ["GPU-a", "GPU-other"], []),
        (FakeGpus("nvmlInit_v2"), ["GPU-a"], []),
        (FakeGpus(divided=True), ["GPU-a"], []),
        (FakeGpus("nvmlDeviceGetTotalEnergyConsumption"), ["GPU-a"], ["gpu_watts"]),
        (FakeGpus("nvmlDeviceGetPowerUsage", "nvmlDeviceGetMigMode"), ["GPU-a"], ["gpu_kwh"]),
    ],
)
def test_metrics_that_a_driver_does_not_report_are_omitted(driver: Any, uuids: list[str], names: list[str]) -> None:
    gpus = GpuEnergyMeter(found(driver, *uuids), used_kwh=0.25)
    assert list(gpus.read()) == names
    assert gpus.kwh() == 0.25


def test_a_resumed_training_adds_to_its_energy(tmp_path: Path) -> None:
    def metered() -> None:
        driver, clock = FakeGpus(), itertools.count(1)

        class Running(dict[int, int]):
            def __getitem__(self, _: int) -> int:
                return next(clock) * 3_600_000_000

        driver.millijoules = Running()
        hardware.local_gpus = lambda _: found(driver, "GPU-a")

    def metered_and_stopped() -> None:
        metered()
        end_after(update=5)

    job = write_job(tmp_path, training=TRAINING)
    assert run(job, metered_and_stopped)["reason"] == "preempted"
    facts = run(job, metered)["facts"]
    used = [row["gpu_kwh"] for row in rows(job) if "loss" in row]
    assert len(used) == 12
    assert used == sorted(set(used)), "each reading is one more"
    assert used[0] == 1
    assert used[4] < used[5] <= used[4] + 2
    assert facts["gpu_kwh"] > used[-1]
    assert {row["gpu_watts"] for row in rows(job) if "loss" in row} == {100.0}


def test_utilisation_is_a_share_of_a_known_peak() -> None:
    peak = peak_flops("NVIDIA H100 80GB HBM3")
    assert Work(peak / 2, peak).mfu(ranks=2) == {"mfu": 0.25}
    assert Work(2e14, peak_flops("cpu")).mfu(ranks=1) == {}
