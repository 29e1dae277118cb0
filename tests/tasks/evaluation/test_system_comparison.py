"""Differences agree with sacreBLEU, p-values are two-sided; systems with different references are never compared."""

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pytest
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from infra.errors import BadConfiguration
from tasks.evaluation import translation_metrics as metrics
from tasks.evaluation.system_comparison import compare
from tasks.evaluation.translation_metrics import ScoreMetric, score_metrics

WORDS = ["dog", "man", "House", "child", "tree", "Street", "ball", "don't", "sees", "the"]


def text(seed: int, wrong: float, count: int = 60) -> list[str]:
    """``count`` lines, equal for every seed except for a share ``wrong`` of random words."""
    truth, noise = random.Random(0), random.Random(seed)
    lines = [[truth.choice(WORDS) for _ in range(truth.randint(4, 14))] for _ in range(count)]
    return [" ".join(noise.choice(WORDS) if noise.random() < wrong else word for word in line) for line in lines]


REFERENCES = text(1, 0.0)
NAMES = (
    "bleu",
    "bleu_lc",
    "bleu_intl",
    "bleu_intl_lc",
    "bleu_paper",
    "bleu_paper_untweaked",
    "bleu_moses_lc",
    "chrf",
    "ter",
)


def table(hypotheses: list[str], references: list[str] = REFERENCES) -> pl.DataFrame:
    chrf = [CHRF().sentence_score(h, [r]).score for h, r in zip(hypotheses, references, strict=True)]
    columns = {"source": references, "reference": references, "hypothesis": hypotheses, "bleu": chrf, "chrf": chrf}
    return pl.DataFrame({"pair_id": [f"toy:{n}" for n in range(60)], **columns})


@pytest.mark.parametrize("wrong", [0.22, 0.25])
def test_p_values_agree_with_sacrebleu_s_two_sided_test(wrong: float) -> None:
    """The test by approximate randomisation is two-sided; sacreBLEU's bootstrap counts one tail."""
    a, b = text(2, 0.2), text(3, wrong)
    theirs = PairedTest(
        [("a", a), ("b", b)], {"BLEU": BLEU(), "CHRF": CHRF()}, [REFERENCES], test_type="ar", n_samples=2000
    )()[1]
    measures = [each for each in score_metrics("en") if each.name in ("bleu", "chrf")]
    swapped = compare("toy", table(b), table(a), measures)
    for found, back in zip(compare("toy", table(a), table(b), measures), swapped, strict=True):
        base, other = theirs[{"bleu": "BLEU", "chrf": "chrF2"}[found.measure]]
        assert (found.a, found.b) == (round(base.score, 4), round(other.score, 4)), "as score cards have them"
        assert found.p == pytest.approx(other.p_value, abs=0.05)
        assert back.p == found.p


@dataclass(frozen=True)
class Counted(ScoreMetric):
    """Takes statistics of sentences in place of their text."""

    def count(self, hypotheses: Any, references: Any) -> Any:
        return np.array(hypotheses)


def test_one_of_twenty_pairs_of_equal_systems_differs_at_the_level_of_a_twentieth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both systems of a pair draw each sentence from the same two translations, so they are equal by construction."""
    monkeypatch.setattr(metrics, "RESAMPLES", 100)
    bleu = score_metrics("en")[0]
    first, second = (bleu.count(text(seed, 0.3, 250), text(1, 0.0, 250)) for seed in (2, 3))
    bleu.metric.corpus_score([REFERENCES[0]], [[REFERENCES[0]]])  # completes the signature
    measure = Counted(bleu.name, bleu.protocol, bleu.metric)
    found = []
    for pair in range(1000):
        swapped = np.random.default_rng(pair).integers(0, 2, len(first)).astype(bool)[:, None]
        both = np.where(swapped, second, first), np.where(swapped, first, second)
        a, b = (pl.DataFrame({"pair_id": range(250), "reference": "", "hypothesis": each}) for each in both)
        found.append(compare("toy", a, b, [measure])[0].p)
    share = float(np.mean(np.array(found) < 0.05))
    assert 0.03 < share <= 0.065


def test_a_system_does_not_differ_from_itself_and_a_much_better_one_does() -> None:
    same = compare("toy", table(text(2, 0.2)), table(text(2, 0.2)), score_metrics("de"))
    assert [row.measure for row in same] == list(NAMES)
    english = compare("toy", table(text(2, 0.2)), table(text(2, 0.2)), score_metrics("en"))
    assert [row.measure for row in english] == [name for name in NAMES if "paper" not in name]
    assert all(row.a == row.b and row.p == 1 for row in same)
    apart = compare("toy", table(text(2, 0.5)), table(text(3, 0.1)), score_metrics("en"))
    assert all(row.p < 0.01 for row in apart)
    few = compare("toy", table(text(2, 0.5)).head(2), table(text(3, 0.1)).head(2), score_metrics("en"))
    assert all(row.p >= 0.5 for row in few), "chance alone may favour one system in both sentences"


def test_languages_without_spaces_are_split_as_by_sacrebleu() -> None:
    written, expected = ["我喜欢红色的苹果。"], ["我喜欢绿色的苹果。"]
    for language, tokenizer in (("zh", "zh"), ("zh-CN", "zh"), ("ja", "char"), ("jpn", "char"), ("de", "13a")):
        cased, without_case, *_ = score_metrics(language)
        found = cased.metric.corpus_score(written, [expected]).score
        assert found == BLEU(tokenize=tokenizer).corpus_score(written, [expected]).score
        assert (found > 30) == (tokenizer != "13a")
        assert cased.protocol.startswith(tokenizer)
        cased.count(written, expected)
        assert f"tok:{tokenizer}" in cased.signature
        assert without_case.metric.tokenizer.__class__ is cased.metric.tokenizer.__class__


def test_metrics_of_words_are_for_languages_that_write_spaces() -> None:
    assert [each.name for each in score_metrics("zh_Hant")] == ["bleu", "bleu_lc", "chrf"]
    assert [each.name for each in score_metrics("DE-at")] == [each.name for each in score_metrics("de")]


def test_the_name_of_a_set_does_not_matter() -> None:
    renamed = table(text(3, 0.3)).with_columns(pair_id=pl.Series([f"other:{n}" for n in range(60)]))
    assert compare("toy", table(text(2, 0.2)), renamed, score_metrics("en"))[0].p < 1


def test_other_references_are_refused() -> None:
    with pytest.raises(BadConfiguration, match="set toy has different references"):
        compare("toy", table(REFERENCES), table(REFERENCES, [*REFERENCES[:-1], "Another."]), [])
