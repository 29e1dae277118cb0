"""What is wrong with a text is seen in it, and what it costs is measured on the same resampled sentences."""

import numpy as np
import pytest
from sacrebleu import metrics
from sacremoses import MosesTokenizer

from model.metric_names import BLEU, BLEU_INTL, BLEU_LC, BLEU_NLTK_SENTENCES, BLEU_SENTENCES
from tasks.evaluation.score_gap import Condition, explain, measure
from tasks.evaluation.text_causes import text_causes
from tasks.evaluation.translation_metrics import Measured
from tasks.stages.gap import _bars, _text_causes

EXPECTED = [f"Der Hund {n} sieht, wie die Katze-Nummer {n * 7 % 11} läuft." for n in range(60)]
WRITTEN = [line if n % 3 else line.replace("sieht", "hört") for n, line in enumerate(EXPECTED)]


def test_steps_are_differences_of_paired_bootstraps_and_sum_to_the_gap() -> None:
    lower = Condition([line.lower() for line in WRITTEN], EXPECTED)
    cut = Condition([line.lower().rpartition(" ")[0] for line in WRITTEN], EXPECTED)
    ours, without_case, without_cut, both = (
        measure(each, "de")
        for each in (
            cut,
            cut._replace(expected=[line.lower() for line in EXPECTED]),
            lower,
            Condition(WRITTEN, EXPECTED),
        )
    )
    assert both.score == pytest.approx(metrics.BLEU().corpus_score(WRITTEN, [EXPECTED]).score)
    steps = explain(
        ours, {"case": without_case, "cut": without_cut}, both, Measured(80.0, np.full_like(ours.resampled, 80.0))
    )
    assert sum(step["score"] for step in steps) == pytest.approx(ours.score - 80.0)
    assert steps[0]["score"] == min(ours.score - without_case.score, ours.score - without_cut.score)
    assert steps[0]["low"] <= steps[0]["score"] <= steps[0]["high"] < 0
    assert [step["about"].split()[0] for step in steps[2:]] == ["interaction", "unexplained:"]
    low, high = np.quantile(ours.resampled - without_cut.resampled, [0.025, 0.975])
    [cut_step] = [step for step in steps if step["about"] == "cut"]
    assert (cut_step["low"], cut_step["high"]) == pytest.approx((low, high))
    single = explain(ours, {"case": without_case}, without_case, Measured(80.0, np.full_like(ours.resampled, 80.0)))
    assert len(single) == 2, "one cause alone cannot interact"


@pytest.mark.parametrize("name", [BLEU_SENTENCES, BLEU_NLTK_SENTENCES])
def test_a_mean_over_sentences_is_measured_as_the_score_card_has_it(name: str) -> None:
    from tasks.evaluation.sentence_bleu import sentence_means

    card = sentence_means(WRITTEN, EXPECTED)[name]
    found = measure(Condition(WRITTEN, EXPECTED, name), "de").numbers
    assert {name: round(found[name], 4) for name in ("score", "low", "high")} == {
        name: card[name] for name in ("score", "low", "high")
    }
    assert measure(Condition(WRITTEN, EXPECTED, BLEU_INTL), "de").score != found["score"]


def test_faults_of_text_are_seen_and_their_repair_gives_the_score_back() -> None:
    healthy = measure(Condition(WRITTEN, EXPECTED), "de").score
    assert text_causes(Condition(WRITTEN, EXPECTED), "de") == []
    moses = MosesTokenizer(lang="de")
    tokens = [moses.tokenize(line, return_str=True, aggressive_dash_splits=True) for line in WRITTEN]
    [tokenised] = text_causes(Condition(tokens, EXPECTED), "de")
    assert tokenised.is_fault
    assert measure(tokenised.repair(Condition(tokens, EXPECTED)), "de").score == pytest.approx(healthy)
    cut = [line.replace("Nummer", "Num@@ mer") for line in WRITTEN]
    [pieces] = text_causes(Condition(cut, EXPECTED), "de")
    assert pieces.repair(Condition(cut, EXPECTED)) == Condition(WRITTEN, EXPECTED)
    lowered = [line.lower() for line in EXPECTED]
    [case] = text_causes(Condition(WRITTEN, lowered), "de")
    assert case.about.startswith("references are lower-cased")
    assert text_causes(Condition(WRITTEN, lowered, BLEU_LC), "de") == []
    assert measure(case.repair(Condition(WRITTEN, lowered)), "de").score >= healthy
    chinese = ["他看见一只狗。", "IBM 很大。"]
    assert text_causes(Condition(["他看见狗。", "很大。"], chinese), "zh") == [], "no letter of it has a case"
    [quotes] = text_causes(Condition([f"„{line}“" for line in WRITTEN], EXPECTED), "de")
    assert not quotes.is_fault, "a published system may have the same"
    [spaces] = text_causes(Condition([line.replace(" ", "\xa0") for line in WRITTEN], EXPECTED), "de")
    assert spaces.about == "unnormalised characters or spaces"


def test_a_fault_of_text_that_the_claim_has_too_is_no_cause() -> None:
    lower = [line.lower() for line in WRITTEN]
    texts = {"lower": Condition(lower, EXPECTED, BLEU_LC), "cased": Condition(WRITTEN, EXPECTED)}
    for claimed in texts:
        causes = _text_causes(texts["lower"]._replace(metric=BLEU), texts[claimed], "de")
        assert any("translations are lower-cased" in each.about for each in causes) == (claimed == "cased")


@pytest.mark.parametrize("steps", [[-10.0, 8.0], [-2.0, -2.0], [3.0], [0.0]])
def test_all_bars_are_within_the_chart(steps: list[float]) -> None:
    for claim in (0.0, 5.0, 27.3):
        axis, bars = _bars(claim, steps)
        assert axis <= min(claim, claim + sum(steps))
        assert all(left >= 0 and width >= 0 and left + width <= 100.001 for left, width in bars)
