"""``Run.synthetic``: which keys it changes, what it accepts, and the reversed run."""

from dataclasses import replace

import pytest

from flows.runner.outcome import Outcome
from flows.runner.request import RunRequest, plan
from flows.runs.built_in_runs import MULTI30K_ENDE, MULTI30K_ENDE_BACK_TRANSLATION
from flows.runs.reversal import monolingual_filters, reversed_run
from tasks.cleaning.filters import Distinct, Language, NotIn

NAME = "multi30k-ende-bt"


def keys(outcome: Outcome) -> dict[tuple[str, str], str]:
    return {(row.stage, row.item): row.key for row in outcome.rows}


def test_it_changes_what_is_trained_on_and_leaves_the_rest() -> None:
    without, with_it = keys(plan(RunRequest("multi30k-ende"))), keys(plan(RunRequest(NAME)))
    same = {of for of in without if without[of] == with_it[of]}
    assert {stage for stage, _ in same} == {"download", "prepare_sets", "clean"}
    untagged = keys(plan(RunRequest(NAME, overrides=("synthetic.tag=",))))
    assert untagged["learn_bpe", ""] == without["learn_bpe", ""]
    assert untagged["shard", "val"] == without["shard", "val"]
    assert untagged["shard", "train"] != without["shard", "train"]


@pytest.mark.parametrize(
    ("override", "changed"),
    [
        ("training.seed=2", "train"),
        ("synthetic.tag=<synthetic>", "learn_bpe"),
        ("synthetic.search=sample", "translate_text"),
        ("synthetic.lines=100", "translate_text"),
        ("synthetic.decoding.beam=1", "translate_text"),
        ("synthetic.seed=2", "train reverse"),
        ("synthetic.updates=5000", "train reverse"),
    ],
)
def test_each_value_changes_the_stages_from_its_own_on(override: str, changed: str) -> None:
    before, after = (plan(RunRequest(NAME, overrides=words)).rows for words in ((), (override,)))
    labels = [f"{row.stage} {row.item}".strip() for row in before if row.key not in {each.key for each in after}]
    assert labels[0] == changed


def test_the_reverse_model_serves_translate_text() -> None:
    rows = plan(RunRequest(NAME, until="mix")).rows
    assert (rows[-1].stage, rows[-1].item) == ("mix", "")
    assert {row.stage for row in rows if row.item == "reverse"} == {"clean", "learn_bpe", "train", "average"}
    assert {row.item for row in plan(RunRequest(NAME, until="clean")).rows} & {"reverse", "reverse/val"} == set()


def test_a_run_reversed_twice_is_the_run() -> None:
    reverse = reversed_run(MULTI30K_ENDE_BACK_TRANSLATION, seed=1)
    assert (reverse.corpus.source_language, reverse.corpus.target_language) == ("de", "en")
    assert reverse.corpus.parts[0].source == MULTI30K_ENDE.corpus.parts[0].target
    assert Language("de", "en") in reverse.filters.rules
    assert reversed_run(reverse, seed=1) == replace(MULTI30K_ENDE_BACK_TRANSLATION, synthetic=None)


def test_the_reverse_model_has_a_length_of_its_own() -> None:
    words = ("training.updates=0", "training.epochs=3")
    long = RunRequest(NAME, overrides=words).resolve().run
    assert reversed_run(long, seed=1).training.epochs == 3
    assert reversed_run(long, seed=1, updates=7_000).training == replace(long.training, epochs=0, updates=7_000)
    as_long = (f"synthetic.updates={MULTI30K_ENDE.training.updates}",)
    assert plan(RunRequest(NAME, until="score", overrides=as_long)).rows == plan(RunRequest(NAME, until="score")).rows


def test_monolingual_text_never_has_lines_of_a_set() -> None:
    run = MULTI30K_ENDE_BACK_TRANSLATION
    filters = monolingual_filters(replace(run, filters=replace(run.filters, rules=(), exclude=())))
    assert {NotIn(), Distinct()} <= set(filters.rules)
    assert filters.exclude == ("val", "test_2016_flickr")
