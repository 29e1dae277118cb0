"""``repro models`` and ``promote``: lists, one version in full, an alias moved with a reason."""

import json
from pathlib import Path

import pytest

from flows.commands.models import models, promote
from flows.commands.show import show
from infra.errors import BadConfiguration
from infra.site import Site
from infra.tracking.registry import create_version, resolve, set_alias
from infra.tracking.tracker import Tracker

DECISION = f"not champion: {'the sentence that matters, ' * 9}to its end"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three versions of one model: 2 best on dev, 1 on test, 3 the newest."""
    root = tmp_path_factory.mktemp("models")
    tracker = Tracker(f"sqlite:///{root}/mlflow.db", root / "mlflow-artifacts")
    tracker.start("ende", "ende", {}, {"training": {"updates": 7}})
    for dev, test in ((30.0, 25.0), (31.0, 24.0), (29.0, 23.0)):
        run_id = tracker.start_stage("register", "", f"{dev}", {})
        model = tracker.client.create_logged_model(tracker._runs.experiment_id, name="ende", source_run_id=run_id)
        tags = {"dev_set": "val", "dev_signature": "13a", "digest.clean": "c1ea" * 16, "digest.learn_bpe": "b9e0" * 16}
        tags |= {"val.bleu": f"{dev}", "test.bleu": f"{test}", "decision": DECISION}
        create_version(tracker.uri, "ende", model.model_id, tracker.run_id, {**tags, "stage_run": run_id})
    set_alias(tracker.uri, resolve(tracker.uri, "ende/2"), "champion", "the best on val")
    return root


@pytest.fixture(autouse=True)
def _in_force(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_ROOT", f"{root}")


@pytest.mark.parametrize(("sort", "order"), [("newest", [3, 2, 1]), ("test", [1, 2, 3])])
def test_versions_are_sorted(sort: str, order: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    models("ende", sort=sort)  # type: ignore[arg-type]
    out, said = capsys.readouterr()
    assert said == f"repro: ende/3 is {DECISION}\n"
    lines = out.splitlines()
    assert [line.split()[0] for line in lines] == [f"ende/{number}" for number in order]
    assert all("13a  data c1eac1ea  vocabulary b9e0b9e0" in line for line in lines)
    models("ende", sort=sort, as_json=True)  # type: ignore[arg-type]
    printed = json.loads(capsys.readouterr().out)
    assert [version["version"] for version in printed] == order
    assert {version["test"] for version in printed} == {"test"}


def test_one_version_is_shown_with_its_source_and_history(capsys: pytest.CaptureFixture[str]) -> None:
    show("ende@champion")
    shown = capsys.readouterr().out
    assert f"  decision  {DECISION}\n" in shown
    version = resolve(Site.named().tracking, "ende/2")
    assert version.run_id in shown
    assert "report.html" in shown
    assert "champion to version 2" in shown
    show("ende/2", as_json=True)
    printed = json.loads(capsys.readouterr().out)["version"]
    assert printed["history"][-1]["why"].endswith(": the best on val")
    assert printed["run_id"] in printed["source"]["run"]
    assert printed["source"]["params.training.updates"] == "7"


def test_an_alias_is_moved_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    promote("ende/1", why="the best on test", alias="chosen")
    assert capsys.readouterr().out.startswith("ende@chosen is ende/1  ")
    promote("ende/3", why="the newest", alias="chosen")
    capsys.readouterr()
    promote("ende/3", why="again", alias="chosen")
    assert "already" in capsys.readouterr().err
    show("ende@chosen", as_json=True)
    printed = json.loads(capsys.readouterr().out)["version"]
    moves = [
        (move["version"], move["why"].partition(": ")[2]) for move in printed["history"] if move["alias"] == "chosen"
    ]
    assert moves == [(3, "the newest"), (1, "the best on test")], "a repeated promotion is not recorded"


def test_a_refused_promotion_moves_nothing() -> None:
    for words, why, sentence in (
        ("ende/9", "why", "no version '9'"),
        ("ende", "why", "as in ende/3"),
        ("ende/1", " ", "--why is empty"),
    ):
        with pytest.raises(BadConfiguration, match=sentence):
            promote(words, why=why, alias="champion")
    assert resolve(Site.named().tracking, "ende@champion").version == 2
