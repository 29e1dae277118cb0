"""Simulated schedules of faults break no invariant, and planted bugs are found (``tests/support/simulated``)."""

import pytest
from simulated.machine import Fault
from simulated.pipeline import Start
from simulated.planted_bugs import FOUND_LATER, QUICKLY_FOUND, Bug, folder_of_another_attempt_resumed
from simulated.schedules import Phase, Schedule, broken, report, run, schedule_of

MOST_SCHEDULES = 10_000


def test_a_hundred_schedules_break_nothing() -> None:
    assert not [found for seed in range(100) if (found := report(schedule_of(seed)))]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_thousands_of_schedules_break_nothing(part: int) -> None:
    assert not next(filter(None, (report(schedule_of(n)) for n in range(1_000 * part, 1_000 * (part + 1)))), "")


def test_a_seed_gives_the_same_schedule_and_the_same_faults() -> None:
    assert schedule_of(5) == schedule_of(5)
    assert run(schedule_of(5)) == run(schedule_of(5))


@pytest.mark.parametrize("bug", QUICKLY_FOUND, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    assert _first_found(bug)


@pytest.mark.slow
@pytest.mark.parametrize("bug", FOUND_LATER, ids=lambda bug: bug.__name__)
def test_a_planted_bug_that_needs_a_rare_moment_is_found(bug: Bug) -> None:
    assert _first_found(bug)


def test_a_folder_of_another_attempt_that_is_resumed_is_found() -> None:
    first, second = Start(1, ("total",), "first"), Start(1, ("total",), "second")
    cut_off = (Phase((first,), (Fault("kill", 0, call),)) for call in range(60, 900, 7))
    with folder_of_another_attempt_resumed():
        found = (broken(Schedule(0, (Phase((Start(1),)), phase, Phase((second,))))) for phase in cut_off)
        assert any("holds parts of" in each for each in found)


def test_two_forced_attempts_at_once_and_a_kill_at_any_call_break_nothing() -> None:
    first, second = Start(1, ("make", "twice", "total"), "first"), Start(1, ("make",), "second")
    for call in range(70, 130):
        cut_off = Phase((first, second), (Fault("kill", 1, call),))
        assert not broken(Schedule(0, (cut_off, Phase((first,)))))
    first, second = Start(1, ("total",), "first"), Start(1, ("total",), "second")
    for call in range(150, 200):
        cut_off = Phase((first,), (Fault("kill", 0, call),))
        assert not broken(Schedule(0, (Phase((first, second)), cut_off)))


def _first_found(bug: Bug) -> Schedule | None:
    with bug():
        return next((each for each in map(schedule_of, range(MOST_SCHEDULES)) if broken(each)), None)
