"""``repro plan --cost``: scaled from the most similar record; the rest is unknown."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sealing import sealed

from flows.commands.options import RunOptions
from flows.commands.plan import plan as plan_command
from flows.inspection.artifact_graph import sealed_everywhere
from flows.inspection.cost import RunCost, StageCost, estimate_cost, stage_costs
from flows.runner.request import RunRequest, make_plan, plan
from infra.site import Site
from infra.store.local import LocalStore
from tasks.engine.planner import StageResult

PARAMETERS = 852_736
"""Of the demo's model with 1,500 entries."""


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REPRO_ROOT", f"{tmp_path}")
    return tmp_path


def planned(stage: str, item: str = "", *overrides: str) -> StageResult:
    rows = plan(RunRequest("demo", overrides=overrides)).rows
    return next(row for row in rows if (row.stage, row.item) == (stage, item))


def record(root: Path, row: StageResult, size: int, took: float, **facts: Any) -> None:
    """An artifact of another key, made by a stage like this one."""
    words = {"stage": row.stage, "item": row.item, "arguments": row.form, "seconds": took, "facts": facts}
    words["version"] = row.version
    sealed(LocalStore(root), f"{row.stage}{size}", {"x.bin": bytes(size)}, **words, made={"at": "2026-11-22"})


def cost(*overrides: str) -> RunCost:
    return estimate_cost(make_plan(RunRequest("demo", overrides=overrides).resolve()))


def of(found: RunCost, label: str) -> StageCost:
    return next(each for each in found.stages if f"{each.stage} {each.item}".strip() == label)


def test_a_training_scales_with_its_updates_from_a_record_of_the_same_model(root: Path) -> None:
    row = planned("train", "", "training.updates=100")
    record(root, row, 1000, 50.0, updates=100, parameters=PARAMETERS, device="cpu")
    record(root, planned("train", "", "model.layers=1"), 7, 9.0, updates=400, parameters=PARAMETERS // 3, device="cpu")
    record(root, row, 2, 1.0, updates=100, parameters=PARAMETERS, device="NVIDIA H200")
    record(root, replace(row, version=row.version + 1), 3, 9.0, updates=300, parameters=PARAMETERS, device="cpu")
    found = of(cost("training.updates=300"), "train")
    assert found.seconds == pytest.approx(150, rel=1e-3)
    assert found.bytes == pytest.approx(1000, rel=1e-3), "more updates are not more weights"
    limited = of(cost("training.updates=300", "training.minutes=1"), "train")
    assert limited.seconds == 60, "the clock ends it"
    of_pairs = of(cost("training.updates=300", "training.batch_sentences=9", "training.minutes=1"), "train")
    assert (of_pairs.seconds, of_pairs.bytes) == (60, None), "tokens say nothing of pairs"
    unlike = of(cost("training.updates=0", "training.epochs=3", "training.minutes=1"), "train")
    assert unlike.seconds == 60, "of epochs nothing else is known"
    assert "train train1000 of 2026-11-22, 50 s × 3 by tokens × parameters" in found.basis.replace(
        "train100 ", "train1000 "
    )


@pytest.mark.parametrize(
    ("whole", "training", "expected"),
    [(5.0, 50.0, 50.0 * 3), (30.0, 20.0, 10.0 + 20.0 * 3)],
    ids=["resumed: all its parts count", "the start of its process takes as long whatever follows"],
)
def test_a_training_scales_by_its_own_seconds(root: Path, whole: float, training: float, expected: float) -> None:
    row = planned("train", "", "training.updates=100")
    record(root, row, 1000, whole, seconds=training, updates=100, parameters=PARAMETERS, device="cpu")
    assert of(cost("training.updates=300"), "train").seconds == pytest.approx(expected, rel=1e-3)


def test_stages_of_text_scale_with_what_they_read_by_estimate_of_inputs_not_made_yet(root: Path) -> None:
    for size, name in ((100, "train.en"), (300, "train.de"), (10, "test.en"), (10_000, "test.de")):
        record(root, planned("download", f"demo/{name}"), size, 2.0)
    sets = planned("prepare_sets", "test")
    one = {"artifact": "download", "key": "download300"}
    record(root, replace(sets, form={**sets.form, "source": one, "target": one}), 50, 6.0)
    found = cost()
    assert (of(found, "download demo/train.en").seconds, of(found, "download demo/train.en").bytes) == (2.0, 100)
    assert of(found, "download demo/dev.en").seconds is None, "the cost of one file says nothing of another"
    assert of(found, "prepare_sets test").seconds == pytest.approx(6 * (10 + 10_000) / (300 + 300))
    assert of(found, "prepare_sets dev").seconds is None, "the sizes of its inputs are not known"
    unlike = planned("download", "demo/dev.en")
    sized = replace(unlike, form={"file": {**unlike.form["file"], "size": 600}})
    reads = {"artifact": "download", "key": sized.key}
    rows = [sized, replace(planned("prepare_sets", "dev"), form={**sets.form, "source": reads, "target": reads})]
    costs = stage_costs(rows, list(sealed_everywhere(LocalStore(root))), Site.named())
    assert [(each.seconds, each.bytes) for each in costs] == [(None, 600), (pytest.approx(12), pytest.approx(100))]


def test_a_translation_takes_longer_but_writes_no_more_with_a_wider_beam(root: Path) -> None:
    row = planned("translate", "test")
    sizes = {"vocabulary": 100, "pairs": 100, "weights": 5_000, "prepared": 300}
    for name, size in sizes.items():
        given = row.form[name]
        sealed(LocalStore(root), given["key"], {"x.bin": bytes(size)}, stage=given["artifact"])
    inputs = {name: sealed(LocalStore(root), f"{name}0", {"x.bin": bytes(50)}, stage=name) for name in sizes}
    inputs = {name: {"artifact": name, "key": made.key} for name, made in inputs.items()}
    record(root, replace(row, form={**row.form, **inputs}), 10, 2.0)
    for beam in (4, 8):
        wider = planned("translate", "test", f"decoding.beam={beam}")
        [found] = stage_costs([wider], list(sealed_everywhere(LocalStore(root))), Site.named())
        assert found.seconds == pytest.approx(2 * (300 / 50) * (5_000 / 50) * beam / 4), "once by the sentences"
        assert found.bytes == pytest.approx(10 * (300 / 50))


def test_the_translation_of_text_scales_with_its_lines(root: Path) -> None:
    store = LocalStore(root)
    given = {"weights": 500, "vocabulary": 900, "text": 100}
    for name, size in {**given, "longer": 400}.items():
        sealed(store, name, {"x.bin": bytes(size)}, stage="clean", facts={"pairs": size})
    form = {name: {"artifact": "clean", "key": name} for name in given} | {"decoding": {"beam": 4}, "lines": 0}
    row = replace(planned("translate", "test"), stage="translate_text", item="", version=1, state="miss", form=form)
    record(root, row, 10, 2.0)
    for text, lines, seconds in (("longer", 0, 8.0), ("longer", 200, 4.0), ("text", 50, 1.0)):
        changed = {**form, "text": {"artifact": "clean", "key": text}, "lines": lines}
        [found] = stage_costs([replace(row, form=changed)], list(sealed_everywhere(store)), Site.named())
        assert found.seconds == pytest.approx(seconds)


def test_the_command_prints_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    plan_command(RunOptions("demo"), cost=True)
    assert "without 21 stages: times are known after the first run of such a stage" in capsys.readouterr().out
    plan_command(RunOptions("demo"), cost=True, as_json=True)
    printed = json.loads(capsys.readouterr().out)
    assert printed["run"] == "demo"


def test_an_interrupted_training_computes_only_what_is_left(root: Path) -> None:
    row = planned("train")
    record(root, row, 1, 1_000.0, parameters=PARAMETERS, updates=row.form["training"]["updates"])
    recorded = [*sealed_everywhere(LocalStore(root))]
    whole, rest, last = (
        stage_costs([replace(row, resumes=done)], recorded, Site.named())[0].seconds or 0 for done in (0, 425, 850)
    )
    assert rest == pytest.approx(whole / 2)
    assert 0 < last < rest
