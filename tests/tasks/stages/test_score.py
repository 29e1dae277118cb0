"""Scores are sacreBLEU's own; references score 100; sets and hypotheses that do not belong together are refused."""

import json
import math
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hand_worked import ROWS
from nltk.translate.bleu_score import sentence_bleu
from sacrebleu.metrics import BLEU, CHRF, TER

from infra.errors import BadData
from infra.store.store import Artifact
from tasks.engine.stage import Facts
from tasks.evaluation.sentence_bleu import SENTENCE_MEANS, nltk_sentence_bleu, sentence_means
from tasks.evaluation.translation_metrics import (
    ScoreMetric,
    measured,
    moses_bleu,
    paper_bleu,
    plain_quotes,
    score_metrics,
    total,
)
from tasks.stages.score import by_source_length, lines_digest, perplexities, score

NOUNS = ["dog", "man", "House", "child", "tree", "Street", "ball", "don't"]
REFERENCES = [f"A {NOUNS[n % 8]} sees the {NOUNS[n * 3 % 7]}, number {n} of {n * n}." for n in range(40)]
SOURCES = [f"Quelle {n} " * (1 + n % 15) for n in range(40)]
HYPOTHESES = [
    line.replace("sees", "Saw") if n % 3 else " ".join(line.split()[: n % 7]) for n, line in enumerate(REFERENCES)
]
IDS = [f"toy:{n}" for n in range(40)]


def pairs(folder: Path) -> Artifact:
    folder.mkdir()
    frame = pl.DataFrame({"pair_id": IDS, "source": SOURCES, "target": REFERENCES})
    frame.write_parquet(folder / "pairs.parquet")
    return Artifact("prepare_sets", "toy", folder)


def translated(folder: Path, ids: list[str], hypotheses: list[str], log_probability: float = -7.0) -> Artifact:
    folder.mkdir()
    frame = pl.DataFrame({"pair_id": ids, "hypothesis": hypotheses}).with_columns(
        reference_log_probability=pl.lit(log_probability), reference_pieces=pl.lit(10, pl.Int32)
    )
    frame.write_parquet(folder / "hypotheses.parquet")
    return Artifact("translate", "toy", folder)


def test_noise_costs_the_difference_to_the_clean_set_and_nothing_where_all_is_equal(tmp_path: Path) -> None:
    for name, hypotheses, clean in (
        ("clean", HYPOTHESES, ""),
        ("same", HYPOTHESES, "clean"),
        ("noised", SOURCES, "clean"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        made = translated(folder / "translate", IDS, hypotheses)
        before = Artifact("score", "clean", tmp_path / clean) if clean else None
        facts = score.body(folder, made, pairs(folder / "pairs"), name, "en", before)
        if not clean:
            clean_bleu = facts["bleu"]
            assert "bleu_loss" not in facts
            continue
        card = json.loads((folder / "card.json").read_text())
        lost = card["losses"]["bleu"]
        assert facts["bleu_loss"] == lost["loss"] == pytest.approx(clean_bleu - facts["bleu"], abs=1e-3)
        assert card["clean_set"] == "clean"
        assert lost["low"] <= lost["loss"] <= lost["high"]
        assert (lost["low"] == lost["high"] == 0) == (name == "same")


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Facts]:
    """The scores of translations in another order than their set's."""
    folder = tmp_path_factory.mktemp("scored")
    hypotheses = translated(folder / "translate", IDS[::-1], HYPOTHESES[::-1])
    return folder, score.body(folder, hypotheses, pairs(folder / "pairs"), "toy", "en")


def test_card_is_what_sacrebleu_says_whatever_the_order(scored: tuple[Path, Facts]) -> None:
    folder, facts = scored
    card = json.loads((folder / "card.json").read_text())
    public = {
        "bleu": BLEU(),
        "bleu_lc": BLEU(lowercase=True),
        "bleu_intl": BLEU(tokenize="intl"),
        "bleu_intl_lc": BLEU(tokenize="intl", lowercase=True),
        "chrf": CHRF(),
        "ter": TER(),
    }
    names = [*list(public)[:4], "bleu_moses_lc", *list(public)[4:], *SENTENCE_MEANS]
    assert list(card["scores"]) == names, "the protocols of the paper are for German alone"
    assert not facts.keys() & {*SENTENCE_MEANS}
    for name, metric in public.items():
        expected = metric.corpus_score(HYPOTHESES, [REFERENCES]).score
        assert card["scores"][name]["score"] == facts[name] == pytest.approx(expected, abs=1e-4)
        assert card["scores"][name]["signature"] == metric.get_signature().format()
    assert facts["bleu_low"] < facts["bleu"] < facts["bleu_high"]
    assert (card["set"], card["sentences"], facts["sentences"]) == ("toy", 40, 40)
    assert card["references_sha256"] == lines_digest(REFERENCES) != lines_digest(REFERENCES[::-1])


def test_sentence_scores_are_sacrebleus_and_in_the_sets_order(scored: tuple[Path, Facts]) -> None:
    table = pl.read_parquet(scored[0] / "sentences.parquet")
    assert table.columns == ["pair_id", "source", "reference", "hypothesis", "bleu", "chrf"]
    assert table["pair_id"].to_list() == IDS
    for row in table.iter_rows(named=True):
        n = IDS.index(row["pair_id"])
        assert (row["source"], row["reference"], row["hypothesis"]) == (SOURCES[n], REFERENCES[n], HYPOTHESES[n])
        bleu = BLEU(effective_order=True).sentence_score(HYPOTHESES[n], [REFERENCES[n]])
        assert row["bleu"] == pytest.approx(bleu.score)
        assert row["chrf"] == pytest.approx(CHRF().sentence_score(HYPOTHESES[n], [REFERENCES[n]]).score)


def test_the_means_over_sentences_are_nltks_and_sacrebleus_unsmoothed() -> None:
    hypotheses = [*HYPOTHESES, "", "A dog", "dog A sees", REFERENCES[0], f"{REFERENCES[0]} and more"]
    references = [*REFERENCES, "A dog", "A dog", "A dog sees", REFERENCES[0], REFERENCES[0]]
    means = sentence_means(hypotheses, references)
    one = BLEU(smooth_method="none")
    lines = list(zip(hypotheses, references, strict=True))
    by_sacrebleu = [one.corpus_score([written], [[expected]]).score for written, expected in lines]
    assert min(by_sacrebleu) == 0 < means["bleu_sentences"]["score"]
    assert means["bleu_sentences"]["score"] == pytest.approx(np.mean(by_sacrebleu), abs=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NLTK warns of each sequence that is not common
        by_nltk = [sentence_bleu([expected.split()], written.split()) for written, expected in lines]
    words = ScoreMetric("", "", BLEU(tokenize="none", force=True)).count(hypotheses, references)
    assert [*map(nltk_sentence_bleu, words)] == by_nltk
    assert any(0 < score < 1e-70 for score in by_nltk)
    mean = means["bleu_nltk_sentences"]
    assert mean["score"] == pytest.approx(100 * np.mean(by_nltk), abs=1e-4)
    assert mean["low"] < mean["score"] < mean["high"]


def test_bootstrap_agrees_with_sacrebleus_and_repeats() -> None:
    for kind in score_metrics("en"):
        counts = kind.count(HYPOTHESES, REFERENCES)
        numbers = measured(kind.metric, counts).numbers
        assert measured(kind.metric, counts).numbers == numbers
        low, high = numbers["low"], numbers["high"]
        if kind.name in ("bleu", "bleu_lc", "chrf", "ter"):
            theirs = type(kind.metric)(**({"lowercase": kind.metric.lowercase} if "bleu" in kind.name else {}))
            estimate = theirs.corpus_score(HYPOTHESES, [REFERENCES], n_bootstrap=1000)
            assert (high - low) / 2 == pytest.approx(estimate._ci, rel=0.15)
            assert (high + low) / 2 == pytest.approx(estimate._mean, rel=0.05)


def test_the_paper_s_tweak_makes_the_quotes_of_the_references_plain_and_no_others() -> None:
    paper, untweaked = paper_bleu()
    line = "Er sagte: „Das ist gut“, und ‚nein‘ – «oui», das war’s."
    assert plain_quotes(line) == 'Er sagte: "Das ist gut", und \'nein\' – "oui", das war\'s.'
    plain, typographic = ['Er sagte: "Das ist gut."'], ["Er sagte: „Das ist gut.“"]

    def score_of(metric: ScoreMetric, hypotheses: list[str], references: list[str]) -> float:
        return total(metric.metric, metric.count(hypotheses, references))

    assert score_of(paper, plain, typographic) == pytest.approx(100)
    assert score_of(paper, typographic, typographic) < 100, "typographic quotes of a hypothesis stay"
    assert score_of(untweaked, plain, typographic) < 100
    assert score_of(untweaked, typographic, typographic) == pytest.approx(100)
    assert (paper.name, paper.protocol.split(":")[0]) == ("bleu_paper", "paper")
    assert (untweaked.name, untweaked.protocol.split(":")[0]) == ("bleu_paper_untweaked", "paper_untweaked")
    assert untweaked.signature.endswith("-de|hyphens:split")


def test_moses_tokens_of_both_sides_are_lower_cased_with_plain_punctuation() -> None:
    measure = moses_bleu("de")
    hypotheses, references = ["Der “alte” Hund BELLT, laut.", "Er rennt"], ['der "alte" Hund bellt , laut.', "Er geht"]
    tokens = ['der " alte " hund bellt , laut .', "er rennt"]
    assert [measure.prepare(line) for line in hypotheses] == tokens
    expected = BLEU(tokenize="none", smooth_method="none").corpus_score(tokens, [[tokens[0], "er geht"]])
    assert total(measure.metric, measure.count(hypotheses, references)) == pytest.approx(expected.score)
    assert measure.signature.endswith("-de|punctuation:normalised|lower-cased")


def test_the_paper_s_protocol_agrees_with_an_example_worked_by_hand() -> None:
    measure, _ = paper_bleu()
    for hypothesis, reference, hypothesis_tokens, reference_tokens in ROWS:
        assert measure.prepare(hypothesis) == hypothesis_tokens
        assert measure.prepare(reference) == reference_tokens
    # multi-bleu.perl: clipped matches over counts, n of 1 to 4, geometric mean, brevity penalty; nothing smoothed.
    matches, counts, lengths = [0] * 4, [0] * 4, [0, 0]
    for _, _, *tokens in ROWS:
        written, expected = (line.split(" ") for line in tokens)
        lengths = [lengths[0] + len(written), lengths[1] + len(expected)]
        for n in range(4):
            mine, theirs = (
                Counter(zip(*(words[i:] for i in range(n + 1)), strict=False)) for words in (written, expected)
            )
            matches[n] += (mine & theirs).total()
            counts[n] += mine.total()
    precision = math.prod(m / c for m, c in zip(matches, counts, strict=True)) ** (1 / 4)
    by_hand = 100 * precision * min(1.0, math.exp(1 - lengths[1] / lengths[0]))
    found = measure.count([row[0] for row in ROWS], [row[1] for row in ROWS])
    assert total(measure.metric, found) == pytest.approx(by_hand, abs=0.01)
    assert by_hand == pytest.approx(54.3, abs=0.1)


def test_a_source_without_spaces_has_no_length_in_words() -> None:
    metric = score_metrics("en")[0]
    counts = metric.count(HYPOTHESES, REFERENCES)
    assert by_source_length(metric.metric, counts, ["我喜欢红色的苹果。"] * len(REFERENCES)) == []
    [bucket] = by_source_length(metric.metric, counts, ["a red apple"] * len(REFERENCES))
    assert bucket["sentences"] == len(REFERENCES)


def test_perplexity_is_the_unsmoothed_one_of_the_references(tmp_path: Path, scored: tuple[Path, Facts]) -> None:
    facts = scored[1]
    assert facts["perplexity"] == pytest.approx(math.exp(0.7), abs=1e-4)
    words = sum(len(line.split()) + 1 for line in REFERENCES)
    assert facts["perplexity_word"] == pytest.approx(math.exp(7 * 40 / words), abs=1e-4)
    assert math.isfinite(perplexities(-1e9, 1, 1)["perplexity"])
    chinese = score.body(tmp_path, translated(tmp_path / "u", IDS, HYPOTHESES), pairs(tmp_path / "other"), "toy", "zh")
    assert chinese["perplexity"] == facts["perplexity"]
    assert "perplexity_word" not in chinese
    with pytest.raises(BadData, match="log-probability is nan"):
        perplexities(math.nan, 1, 1)


@pytest.mark.parametrize("ids", [IDS[:-1], [*IDS[:-1], "toy:99"], [*IDS[:-1], "toy:0"], [*IDS, "toy:99"]])
def test_hypotheses_of_another_set_are_refused(tmp_path: Path, ids: list[str]) -> None:
    hypotheses = translated(tmp_path / "t", ids, (HYPOTHESES * 2)[: len(ids)])
    with pytest.raises(BadData):
        score.body(tmp_path, hypotheses, pairs(tmp_path / "pairs"), "toy", "en")
