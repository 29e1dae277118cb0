"""``Run.synthetic``: which keys it changes, the reversed run, and what teacher and student share."""

from dataclasses import replace

import pytest

from flows.runner.outcome import Outcome
from flows.runner.request import RunRequest, plan
from flows.runs import RUNS
from flows.runs.built_in_runs import MULTI30K_ENDE, MULTI30K_ENDE_BACK_TRANSLATION
from flows.runs.reversal import reversed_run
from flows.runs.synthetic import Distillation
from model.config import count_parameters
from tasks.cleaning.language_filters import Language

BACK = "multi30k-ende-bt"
DISTILLED = "demo-distilled"


def keys(outcome: Outcome) -> dict[tuple[str, str], str]:
    return {(row.stage, row.item): row.key for row in outcome.rows}


def test_it_changes_what_is_trained_on_and_leaves_the_rest() -> None:
    without, with_it = keys(plan(RunRequest("multi30k-ende"))), keys(plan(RunRequest(BACK)))
    same = {of for of in without if without[of] == with_it[of]}
    assert {stage for stage, _ in same} == {"download", "prepare_sets", "clean"}
    untagged = keys(plan(RunRequest(BACK, overrides=("synthetic.tag=",))))
    assert untagged["learn_bpe", ""] == without["learn_bpe", ""]
    assert untagged["shard", "val"] == without["shard", "val"]
    assert untagged["shard", "train"] != without["shard", "train"]


@pytest.mark.parametrize(
    ("name", "override", "changed"),
    [
        (BACK, "training.seed=2", "train"),
        (BACK, "synthetic.tag=<synthetic>", "learn_bpe"),
        (BACK, "synthetic.lines=100", "translate_text"),
        (BACK, "synthetic.decoding.beam=1", "translate_text"),
        (BACK, "synthetic.seed=2", "train reverse"),
        (BACK, "synthetic.updates=5000", "train reverse"),
        (DISTILLED, "synthetic.teacher.p_drop=0.2", "train teacher/seed-1"),
        (DISTILLED, "synthetic.seeds=2", "train teacher/seed-2"),
        (DISTILLED, "synthetic.n_best=3", "translate_text"),
        (DISTILLED, "synthetic.decoding.beam=5", "translate_text"),
        (DISTILLED, "synthetic.references=true", "extract_best"),
        (DISTILLED, "model.layers=2", "train"),
        (DISTILLED, "training.seed=2", "train"),
    ],
)
def test_each_value_changes_the_stages_from_its_own_on(name: str, override: str, changed: str) -> None:
    before, after = (plan(RunRequest(name, overrides=words)).rows for words in ((), (override,)))
    known = {row.key for row in before}
    assert next(f"{row.stage} {row.item}".strip() for row in after if row.key not in known) == changed


def test_a_run_reversed_twice_is_the_run() -> None:
    reverse = reversed_run(MULTI30K_ENDE_BACK_TRANSLATION, seed=1)
    assert (reverse.corpus.source_language, reverse.corpus.target_language) == ("de", "en")
    assert reverse.corpus.parts[0].source == MULTI30K_ENDE.corpus.parts[0].target
    assert Language("de", "en") in reverse.filters.rules
    assert reversed_run(reverse, seed=1) == replace(MULTI30K_ENDE_BACK_TRANSLATION, synthetic=None)


def test_the_reverse_model_has_a_length_of_its_own() -> None:
    words = ("training.updates=0", "training.epochs=3")
    long = RunRequest(BACK, overrides=words).resolve().run
    assert reversed_run(long, seed=1).training.epochs == 3
    assert reversed_run(long, seed=1, updates=7_000).training == replace(long.training, epochs=0, updates=7_000)
    as_long = (f"synthetic.updates={MULTI30K_ENDE.training.updates}",)
    assert plan(RunRequest(BACK, until="score", overrides=as_long)).rows == plan(RunRequest(BACK, until="score")).rows


@pytest.mark.parametrize(("name", "teacher"), [(DISTILLED, "demo"), ("multi30k-ende-distilled", "multi30k-ende")])
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
    student, large = (count_parameters(RUNS[each].model, size, size) for each in (name, teacher))
    assert 0.3 < student / large < 0.36


def test_teachers_of_the_best_run_are_models_of_multi30k_ende() -> None:
    best = keys(plan(RunRequest("multi30k-ende-best", until="score")))
    for seed in (1, 5):
        overrides = ("training.precision=bf16", f"training.seed={seed}")
        alone = keys(plan(RunRequest("multi30k-ende", until="score", overrides=overrides)))
        assert best["train", f"teacher/seed-{seed}"] == alone["train", ""]


def test_teachers_train_as_long_as_the_student_unless_their_updates_are_given() -> None:
    longer = keys(plan(RunRequest(DISTILLED, overrides=("training.updates=901",))))
    alone = keys(plan(RunRequest(DISTILLED, overrides=("training.updates=901", "synthetic.updates=900"))))
    assert alone["train", ""] != longer["train", ""]
    assert alone["train", "teacher/seed-1"] != longer["train", "teacher/seed-1"]
    own = keys(plan(RunRequest(DISTILLED)))
    together = keys(plan(RunRequest(DISTILLED, overrides=("synthetic.seeds=1,2",))))
    assert together["train", "teacher/seed-1"] == own["train", "teacher/seed-1"]
    assert together["translate_text", ""] != own["translate_text", ""], "several seeds translate together"
    with pytest.raises(ValueError, match=r"synthetic\.updates is -1, allowed is 0 \(as long as the run's\)"):
        replace(RUNS[DISTILLED], synthetic=Distillation(RUNS[DISTILLED].model, updates=-1))
