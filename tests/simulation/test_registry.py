"""Runs that register models, cut off at any call, leave a registry that agrees with the manifests."""

import pytest
from simulated.planted_bugs import IN_THE_REGISTRY, Bug
from simulated.registry_schedules import run, schedule_of
from simulated.schedules import broken, report


def test_schedules_of_the_registry_break_nothing() -> None:
    assert not [found for seed in range(150) if (found := report(schedule_of(seed), run))]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_thousands_of_schedules_of_the_registry_break_nothing(part: int) -> None:
    assert not next(filter(None, (report(schedule_of(n), run) for n in range(1_000 * part, 1_000 * (part + 1)))), "")


@pytest.mark.parametrize("bug", IN_THE_REGISTRY, ids=lambda bug: bug.__name__)
def test_a_planted_bug_of_the_registry_is_found(bug: Bug) -> None:
    with bug():
        assert any(broken(schedule_of(seed), run) for seed in range(10_000))
