"""``repro gc --delete`` beside simulated runs of one name removes nothing that is needed."""

from collections.abc import Iterable

from simulated.machine import Fault
from simulated.pipeline import Start
from simulated.schedules import Phase, Schedule, broken

ONE, OTHER, FORCED = Start(1), Start(2), Start(1, ("make",), "attempt")
COLLECTION = Start(0, collects=True)
ONE_IS_GARBAGE = (Phase((ONE,)), Phase((OTHER,)))


def violations(*phases: Phase, kind: str = "", calls: Iterable[int] = (0,)) -> set[str]:
    """What is broken if a fault happens in the first process of the last phase at one of these calls."""
    *before, last = phases
    schedules = [Schedule(0, (*before, Phase(last.starts, (Fault(kind, 0, call),)))) for call in calls]
    return {broken(schedule) for schedule in schedules} - {""}


def test_what_the_newest_run_used_stays_though_it_made_nothing() -> None:
    assert not violations(*ONE_IS_GARBAGE, Phase((ONE,)), Phase((COLLECTION,)))


def test_what_a_run_needs_stays_that_begins_after_the_list_was_made() -> None:
    assert not violations(*ONE_IS_GARBAGE, Phase((COLLECTION, ONE)), kind="switch", calls=range(1, 150, 3))


def test_what_a_running_run_needs_stays_though_a_newer_run_of_its_name_ended() -> None:
    assert not violations(Phase((OTHER,)), Phase((ONE, OTHER, COLLECTION)), kind="switch", calls=range(300, 700, 20))


def test_what_a_run_used_stays_after_a_loss_of_power() -> None:
    for choice in range(10):
        assert not violations(Phase((ONE,)), Phase((ONE,), (Fault("power", 0, 5, choice),)), Phase((COLLECTION,)))


def test_an_artifact_whose_replacement_was_cut_short_stays_however_old_it_is() -> None:
    for call in range(90, 130):
        cut_off = Phase((FORCED,), (Fault("kill", 0, call),), much_later=True)
        assert not violations(Phase((ONE,)), cut_off, Phase((COLLECTION,)))
