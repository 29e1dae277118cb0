"""A request, resolved: sets of another corpus are said or refused wherever one is, so by sweeps and schedules too."""

from dataclasses import replace
from pathlib import Path

import pytest

from flows.orchestration.deploy import _deployment_of
from flows.orchestration.prefect_flows import hyperparameter_sweep
from flows.runner.request import RunRequest
from flows.runs import DEMO, MULTI30K_ENDE, MULTI30K_ENFR
from flows.runs.toml_runs import toml_of
from flows.tuning.sweep import SweepRequest
from infra.errors import BadConfiguration

REFUSED = "mine is scored on dev, test of demo, which is en-de, but translates en-fr"
SPACE = ("training.warmup=50,100",)


def test_a_run_with_sets_of_other_languages_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(toml_of(replace(DEMO, name="mine", corpus=MULTI30K_ENFR.corpus)))
    for module in ("claim_and_close_dead_runs", "duplicate_run"):
        monkeypatch.setattr(f"flows.orchestration.prefect_flows.{module}", lambda *_: "")
    with pytest.raises(BadConfiguration, match=REFUSED):
        RunRequest(f"{file}").resolve()
    with pytest.raises(BadConfiguration, match=REFUSED):
        SweepRequest(f"{file}", SPACE).resolve()
    with pytest.raises(BadConfiguration, match=REFUSED):
        _deployment_of(f"{file}")
    with pytest.raises(BadConfiguration, match=REFUSED):
        hyperparameter_sweep.fn(f"{file}", SPACE)


def test_sets_of_another_corpus_in_the_same_languages_are_said(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(toml_of(replace(DEMO, name="mine", corpus=MULTI30K_ENDE.corpus)))
    said = "mine is scored on dev, test of demo, not of its corpus"
    assert said in RunRequest(f"{file}").resolve().remark
    assert said in SweepRequest(f"{file}", SPACE).resolve().base.remark
    assert RunRequest("demo").resolve().remark == ""
