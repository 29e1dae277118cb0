"""``synthetic=Distillation(...)``: which keys it changes, what it shares with the teacher's run, what it accepts."""

import pytest

from flows.runner.outcome import Outcome
from flows.runner.request import RunRequest, plan
from flows.runs import RUNS
from model.config.parameter_count import parameters

NAME = "demo-distilled"


def keys(outcome: Outcome) -> dict[tuple[str, str], str]:
    return {(row.stage, row.item): row.key for row in outcome.rows}


@pytest.mark.parametrize(("name", "teacher"), [(NAME, "demo"), ("multi30k-ende-distilled", "multi30k-ende")])
def test_the_teacher_is_the_model_of_its_own_run_and_the_student_has_a_third_of_its_size(
    name: str, teacher: str
) -> None:
    own, distilled = keys(plan(RunRequest(teacher))), keys(plan(RunRequest(name)))
    dev = RUNS[name].dev
    assert distilled["train", "teacher/seed-1"] == own["train", ""]
    assert distilled["average", "teacher/seed-1"] == own["average", ""]
    assert distilled["shard", f"teacher/{dev}"] == distilled["shard", dev] == own["shard", dev]
    assert distilled["shard", "teacher/train"] == own["shard", "train"] != distilled["shard", "train"]
    same = {of for of in own if distilled[of] == own[of]}
    assert {stage for stage, _ in same} == {"download", "prepare_sets", "clean", "learn_bpe", "shard"}
    size = RUNS[name].vocabulary.size
    student, large = (parameters(RUNS[each].model, size, size) for each in (name, teacher))
    assert 0.3 < student / large < 0.36


@pytest.mark.parametrize(
    ("override", "changed"),
    [
        ("synthetic.teacher.p_drop=0.2", "train teacher/seed-1"),
        ("synthetic.seeds=2", "train teacher/seed-2"),
        ("synthetic.n_best=3", "translate_text"),
        ("synthetic.decoding.beam=5", "translate_text"),
        ("synthetic.references=true", "extract_best"),
        ("model.layers=2", "train"),
        ("training.seed=2", "train"),
    ],
)
def test_each_value_changes_the_stages_from_its_own_on(override: str, changed: str) -> None:
    before, after = (plan(RunRequest(NAME, overrides=words)).rows for words in ((), (override,)))
    known = {row.key for row in before}
    assert next(f"{row.stage} {row.item}".strip() for row in after if row.key not in known) == changed


def test_teachers_of_several_seeds_translate_together_and_serve_translate_text() -> None:
    rows = plan(RunRequest(NAME, until="extract_best", overrides=("synthetic.seeds=1,2",))).rows
    found = [(row.stage, row.item) for row in rows if row.stage not in ("download", "prepare_sets")]
    assert found == [
        ("clean", ""),
        ("learn_bpe", ""),
        ("shard", "teacher/train"),
        ("shard", "teacher/dev"),
        ("train", "teacher/seed-1"),
        ("average", "teacher/seed-1"),
        ("train", "teacher/seed-2"),
        ("average", "teacher/seed-2"),
        ("translate_text", ""),
        ("extract_best", ""),
    ]
    alone = keys(plan(RunRequest(NAME)))
    assert (
        alone["translate_text", ""]
        != keys(plan(RunRequest(NAME, overrides=("synthetic.seeds=1,2",))))["translate_text", ""]
    )
    assert [row.stage for row in plan(RunRequest(NAME, until="learn_bpe")).rows][-1] == "learn_bpe"
