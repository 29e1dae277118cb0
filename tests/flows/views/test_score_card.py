"""The score card in the terminal: what a reader compares, by set."""

from typing import Any

from rich.console import Console

from flows.runner.outcome import Outcome
from flows.views.tables import format_facts, score_card
from model.metric_names import BLEU, BLEU_LC, CHRF, PERPLEXITY
from tasks.engine.planner import StageResult

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
FACTS = {BLEU: 26.0, "bleu_low": 25.2, "bleu_high": 26.81, BLEU_LC: 27.3, CHRF: 55.125, "signature": SIGNATURE}


def printed(scores: dict[str, dict[str, Any]]) -> list[str]:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(score_card(scores))
    return capture.get().splitlines()


def test_a_set_is_a_row_of_bleu_with_its_interval_chrf_and_perplexity_above_the_signature() -> None:
    scores = {"dev": {**FACTS, PERPLEXITY: 7.5}, "test": {**FACTS, PERPLEXITY: 8.0}}
    head, dev, test, signature = printed(scores)
    assert head.split() == ["set", "BLEU", "chrF", "perplexity"]
    assert dev.split() == ["dev", "26.00", "(25.20–26.81)", "55.12", "7.50"]
    assert test.split()[-1] == "8.00"
    assert signature == f"BLEU, in brackets its 95 % interval: {SIGNATURE}"
    assert printed({"test": FACTS})[0].split() == ["set", "BLEU", "chrF"], "another system has no perplexity"


def test_repetitions_and_lines_of_the_sets_are_no_rejected_pairs() -> None:
    by_rule = {"length": 189, "distinct": 0, "not_in": 576}
    shown = format_facts({"read": 8079, "pairs": 7314, "rejected": 765, "rejected_by": by_rule})
    assert shown == "read 8,079 · pairs 7,314 · rejected 189 · in dev or test 576"


def test_of_a_model_that_writes_lower_case_the_scores_without_case_come_first() -> None:
    head, row, *_, note = printed({"test": {**FACTS, "source_input": "lower-cased and words split as by Moses"}})
    assert head.split()[:4] == ["set", "BLEU", "lower-cased", "BLEU"]
    assert row.split()[:3] == ["test", "27.30", "26.00"]
    assert "lower case" in note


def test_beside_the_card_of_cached_stages_are_the_warnings_about_weights_and_translations() -> None:
    ended = {"updates": 32, "seconds": 87.0, "stopped_early": True, "dev_perplexity": 412.3}
    settings = {"training": {"updates": 2000, "minutes": 1}}
    rows = [
        StageResult("train", "", "t", "cached", facts=ended, form=settings),
        StageResult("translate", "dev", "d", "cached", facts={"sentences": 597, "unfinished": 0, "empty": 597}),
        StageResult("score", "dev", "s", "cached", facts={PERPLEXITY: 710.6}),
    ]
    clock, empty, average = Outcome("mine", rows).remarks("dev")
    assert clock.startswith("the clock ended the training")
    assert empty.startswith("597 of 597 translations of dev are empty")
    assert "perplexity 710.6 on dev, the last checkpoint alone 412.3" in average
