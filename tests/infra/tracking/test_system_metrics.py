"""Samples of this machine: after a minute, at the update of the job, under MLflow's names."""

import os
from pathlib import Path

from infra.tracking.system_metrics import SystemMetrics


def test_a_short_job_gives_none_and_a_long_one_all_from_its_start(tmp_path: Path) -> None:
    now = 0.0
    metrics = SystemMetrics(tmp_path, clock=lambda: now)
    given = []
    for now in range(0, 81, 5):
        given.append(metrics.rows(done=now * 2))
    assert not any(given[:12]), "no minute has passed"
    assert [row["done"] for row in given[12]] == [20, 40, 60, 80, 100, 120]
    assert [[row["done"] for row in rows] for rows in given[13:]] == [[], [140], [], [160]]


def test_the_samples_are_of_this_machine(tmp_path: Path) -> None:
    now = 0.0
    metrics = SystemMetrics(tmp_path, clock=lambda: now)
    sum(number * number for number in range(2_000_000))  # some ticks of work
    now = 70.0
    (row,) = metrics.rows(done=7)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e6
    assert 0 < row["system/system_memory_usage_megabytes"] < total
    assert 0 < row["system/cpu_utilization_percentage"] <= 100
    assert 0 < row["system/disk_usage_percentage"] < 100
    assert row["system/disk_available_megabytes"] > 0
