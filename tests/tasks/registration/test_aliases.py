"""What others do while a model is being stored: the better version ends as champion, and what a person chose stays."""

from collections.abc import Callable
from typing import Any

import pytest
from finished_run import FinishedRun

from infra.tracking.registry import set_alias, versions
from tasks.registration import register_version as module
from tasks.registration.aliases import move_aliases


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    return FinishedRun(tmp_path_factory.mktemp("aliases"))


@pytest.fixture
def register_while(run: FinishedRun, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Register a version with this BLEU, during whose storing ``meanwhile`` happens."""
    store = module.log_model

    def register(name: str, bleu: float, meanwhile: Callable[[], object]) -> dict[str, Any]:
        def stored(*arguments: Any) -> str:
            monkeypatch.setattr(module, "log_model", store)
            meanwhile()
            return store(*arguments)

        monkeypatch.setattr(module, "log_model", stored)
        return run.register(name, run.tags(bleu))

    return register


def holders(run: FinishedRun, name: str) -> dict[str, int]:
    return {alias: version.version for version in versions(run.tracker.uri, name) for alias in version.aliases}


@pytest.mark.parametrize(("other", "champion"), [(35.0, 3), (40.0, 3), (50.0, 2)])
def test_another_registration_meanwhile_is_compared_with(
    run: FinishedRun, register_while: Callable[..., dict[str, Any]], other: float, champion: int
) -> None:
    name = f"with-{other:.0f}"
    run.register(name, run.tags(30.0))
    said = register_while(name, 40.0, lambda: run.register(name, run.tags(other)))
    assert holders(run, name) == {"candidate": 3, "champion": champion}
    assert ("champion" in said["aliases"]) == (champion == 3)


def test_what_a_person_promotes_meanwhile_stays(
    run: FinishedRun, register_while: Callable[..., dict[str, Any]]
) -> None:
    run.register("by-hand", run.tags(30.0))
    run.register("by-hand", run.tags(20.0))

    def promote() -> None:
        poor = next(version for version in versions(run.tracker.uri, "by-hand") if version.version == 2)
        set_alias(run.tracker.uri, poor, "champion", "read by two translators")

    said = register_while("by-hand", 40.0, promote)
    assert holders(run, "by-hand") == {"candidate": 3, "champion": 2}
    assert said["decision"] == "not champion: version 2 was promoted by hand during the registration"


def test_a_repeated_registration_takes_no_version_of_its_run_that_was_measured_otherwise(run: FinishedRun) -> None:
    run_id = run.tracker.start_stage("register", "", "repeated", {})
    made = [
        module.register_version(
            run.tracker.uri, run.root, run_id, "again", run.model, tags, False, 1.0, lambda _: 0.01
        )["version"]
        for tags in (run.tags(30.0), run.tags(40.0), run.tags(40.0))
    ]
    assert made == [1, 2, 2]


def test_a_registration_that_is_repeated_late_does_not_take_the_candidate(run: FinishedRun) -> None:
    for bleu in (30.0, 20.0, 25.0):
        run.register("late", run.tags(bleu))
    first, second, _ = sorted(versions(run.tracker.uri, "late"), key=lambda version: version.version)
    move_aliases(run.tracker.uri, second, [first], 0.0, lambda _: 1.0)
    assert holders(run, "late")["candidate"] == 3
