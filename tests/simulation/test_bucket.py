"""Machines that share a simulated bucket break no invariant, and planted bugs are found."""

import pytest
from simulated.bucket_bugs import IN_A_BUCKET
from simulated.bucket_schedules import run, schedule_of
from simulated.machine import Fault
from simulated.pipeline import Start
from simulated.planted_bugs import Bug
from simulated.schedules import Phase, Schedule, broken, report


def test_schedules_of_a_bucket_break_nothing() -> None:
    assert not [found for seed in range(100) if (found := report(schedule_of(seed), run))]


def test_a_seed_gives_the_same_faults() -> None:
    assert run(schedule_of(8)) == run(schedule_of(8))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_thousands_of_schedules_of_a_bucket_break_nothing(part: int) -> None:
    assert not next(filter(None, (report(schedule_of(n), run) for n in range(1_000 * part, 1_000 * (part + 1)))), "")


@pytest.mark.parametrize("bug", IN_A_BUCKET, ids=lambda bug: bug.__name__)
def test_a_planted_bug_of_the_bucket_is_found(bug: Bug) -> None:
    with bug():
        assert any(broken(schedule_of(seed), run) for seed in range(10_000))


def test_an_artifact_that_is_replaced_during_a_download_is_not_quarantined() -> None:
    made, read, forced = Start(1), Start(1, machine=1), Start(1, ("make",), "attempt")
    for call in range(1, 260, 4):
        switched = Phase((read, forced), (Fault("switch", 0, call),), world_changes=True)
        assert not broken(Schedule(0, (Phase((made,)), switched)), run)


def test_a_snapshot_that_was_fetched_survives_a_power_loss() -> None:
    began = Phase((Start(1),), (Fault("power", 0, 474, 57744),))
    for call in range(148, 164, 2):
        assert not broken(Schedule(0, (began, Phase((Start(1),), (Fault("power", 0, call, 18724),)))), run)
