"""A request, resolved: sets of another corpus are said or refused wherever one is, so by sweeps and schedules too."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from flows.orchestration.deploy import _deployment_of
from flows.orchestration.prefect_flows import sweep
from flows.runner.find_run import without_path
from flows.runner.request import RunRequest, make_plan, plan
from flows.runs import DEMO, MULTI30K_ENDE, MULTI30K_ENFR
from flows.runs.toml_runs import toml_of
from flows.tuning.sweep import SweepRequest
from flows.views.stage_words import why
from infra.errors import BadConfiguration
from tasks.engine.keys import differences
from tasks.engine.planner import StageResult
from tasks.stages.translate import translate

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
        SweepRequest(f"{file}", spaces=SPACE).resolve()
    with pytest.raises(BadConfiguration, match=REFUSED):
        _deployment_of(f"{file}")
    with pytest.raises(BadConfiguration, match=REFUSED):
        sweep.fn(run=f"{file}", spaces=SPACE)  # by name, as Prefect calls it


def test_prefect_names_a_run_of_a_file_without_its_path() -> None:
    names = {"/home/me/mine.toml": "mine", "/runs/own.py:MINE": "MINE", "a/b.toml-swapped": "b-swapped", "demo": "demo"}
    assert {run: without_path(run) for run in names} == names


def test_sets_of_another_corpus_in_the_same_languages_are_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(toml_of(replace(DEMO, name="mine", corpus=MULTI30K_ENDE.corpus)))
    said = "mine is scored on dev, test of demo, not of its corpus"
    RunRequest("demo").resolve()
    assert caplog.messages == []
    RunRequest(f"{file}").resolve()
    SweepRequest(f"{file}", spaces=SPACE).resolve()
    assert [said in text for text in caplog.messages] == [True]


def test_sets_that_are_not_kept_out_of_the_training_text_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "leaky.toml"
    file.write_text(toml_of(replace(DEMO, name="leaky", filters=replace(DEMO.filters, exclude=("dev",)))))
    RunRequest(f"{file}").resolve()
    assert [text.startswith("lines of test may be in the training text") for text in caplog.messages] == [True]


def test_a_plan_refuses_settings_of_the_site_that_its_training_would_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRO_ROOT", str(tmp_path))

    def plan(*overrides: str, until: str = "") -> list[str]:
        request = RunRequest("demo", until=until, overrides=overrides)
        return [row.stage for row in make_plan(request.resolve()).outcome.rows]

    monkeypatch.setenv("REPRO_COMPILE", "update")
    sentence = "allowed is auto, always or never where training.batching is not packed"
    with pytest.raises(BadConfiguration, match=sentence):
        plan()
    assert "train" not in plan(until="shard"), "nothing is trained"
    packed = "training.batching=packed"
    assert "train" in plan(packed)
    assert "train" in plan("training.numerics=strict"), "strict numerics has settings of its own"
    monkeypatch.setenv("REPRO_DEVICE", "cuda")
    with pytest.raises(BadConfiguration, match=r"site.device is .cuda., allowed is cpu where numerics is strict"):
        plan("training.numerics=strict")
    monkeypatch.delenv("REPRO_DEVICE")
    monkeypatch.setenv("REPRO_MICRO_BATCH_TOKENS", "100")
    with pytest.raises(BadConfiguration, match="REPRO_MICRO_BATCH_TOKENS is set"):
        plan(packed)


def test_a_plan_names_a_raised_version_of_a_stage_and_an_artifact_that_is_new_among_its_arguments(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translate, "version", translate.version + 1)
    rows = {(row.stage, row.item): row for row in plan(RunRequest("small")).rows}
    raised = f"not made yet; stage version {translate.version - 1} -> {translate.version}"
    assert why(rows["translate", "dev"]) == raised
    assert "stage version" not in why(rows["score", "dev"])
    assert {row.stage for row in rows.values() if row.state != "cached"} == {"translate", "score", "report", "register"}
    assert differences({"set": {"artifact": "clean", "key": "a"}}, {}) == ["set: new, clean"]


def test_a_plan_says_from_which_update_a_training_resumes(small: Path) -> None:
    def trained(*force: str) -> StageResult:
        rows = plan(RunRequest("small", overrides=("training.label_smoothing=0.2",), force=force)).rows
        return next(row for row in rows if row.stage == "train")

    assert "resumes" not in why(trained())
    (small / "train" / f"{trained().key}.partial-resume-1" / "checkpoints" / "00000040").mkdir(parents=True)
    assert why(trained()).startswith("not made yet; resumes from update 40; training.label_smoothing")
    assert "resumes" not in why(trained("train")), "which begins at update 0"


@pytest.mark.parametrize(
    ("variable", "value", "library"),
    [("REPRO_LAUNCHER", "kubernetes", "kubernetes"), ("REPRO_DASK", "tcp://nowhere:1", "distributed")],
)
def test_a_plan_says_what_is_not_installed(
    variable: str, value: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a run says so after servers have started and earlier stages have run."""
    monkeypatch.setenv(variable, value)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(BadConfiguration, match=rf"{library} is not installed here: pip install .*{variable}"):
        plan(RunRequest("demo"))
    monkeypatch.delenv(variable)
    assert plan(RunRequest("demo")).rows
