"""Metrics of translations: sacreBLEU's, each with a name and a protocol, and their bootstrap intervals.

A metric keeps sufficient statistics per sentence. Their sum gives the corpus score, resampled sums give the interval
(Koehn 2004), and one row gives the sentence score. ``tasks.stages.score`` reads and writes the files.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.float64]

RESAMPLES = 1_000
SEED = 12_345
CONFIDENCE_LEVEL = 0.95
COMPOUND = re.compile(r"(\S)-(\S)")


@dataclass(frozen=True)
class ScoreMetric:
    """A sacreBLEU metric with a name and a protocol; ``prepare`` preprocesses each line."""

    name: str
    protocol: str
    metric: Any
    prepare: Callable[[str], str] = str
    prepared_by: str = ""

    def count(self, hypotheses: Sequence[str], references: Sequence[str]) -> Counts:
        """sacreBLEU's sufficient statistics for each sentence: (sentences, statistics)."""
        written, expected = ([self.prepare(line) for line in lines] for lines in (hypotheses, references))
        return np.array(self.metric._extract_corpus_statistics(written, [expected]), dtype=np.float64)

    @property
    def signature(self) -> str:
        """Everything needed to reproduce the score; complete after the first ``count``."""
        return "|".join(filter(None, [self.metric.get_signature().format(), self.prepared_by]))


def score_metrics(language: str) -> list[ScoreMetric]:
    """All metrics of the card for text in ``language`` (``de``); the first is the headline."""
    from sacrebleu.metrics import BLEU, CHRF, TER  # takes 0.2 s, which a fully cached run should not pay

    return [
        ScoreMetric("bleu", "13a, cased, detokenised", BLEU()),
        ScoreMetric("bleu_lc", "13a, lower-cased, detokenised", BLEU(lowercase=True, force=True)),
        ScoreMetric("bleu_intl", "international, cased, detokenised", BLEU(tokenize="intl", force=True)),
        ScoreMetric("bleu_intl_lc", "international, lower-cased", BLEU(tokenize="intl", lowercase=True, force=True)),
        paper_bleu(language),
        ScoreMetric("chrf", "characters 1 to 6, cased", CHRF()),
        ScoreMetric("ter", "edits and shifts per word, lower-cased; lower is better", TER()),
    ]


def paper_bleu(language: str) -> ScoreMetric:
    """BLEU as the paper's authors computed it (tensor2tensor's get_ende_bleu.sh): ``multi-bleu.perl`` over tokens of
    Moses' ``tokenizer.perl``, with compound hyphens split as ``##AT##-##AT##`` in hypotheses and references. It counts
    more and easier matches than 13a: never compare the two.
    """
    from sacrebleu.metrics import BLEU
    from sacremoses import MosesTokenizer

    moses = MosesTokenizer(lang=language)

    def tokens(line: str) -> str:
        # Escaping XML's characters, which Moses does by default, changes no match.
        return split_compounds(moses.tokenize(line, return_str=True, escape=False))

    protocol = "of the paper: Moses tokens, hyphens of compounds split, cased, unsmoothed"
    made_by = f"moses:sacremoses-{version('sacremoses')}-{language}|hyphens:split"
    return ScoreMetric("bleu_paper", protocol, BLEU(tokenize="none", smooth_method="none", force=True), tokens, made_by)


def split_compounds(line: str) -> str:
    """``rich-text`` to ``rich ##AT##-##AT## text``, as perl's ``s{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g`` does."""
    return COMPOUND.sub(r"\1 ##AT##-##AT## \2", line)


def total(metric: Any, counts: Counts) -> float:
    """The corpus score of these sentences."""
    return float(metric._compute_score_from_stats(counts.sum(axis=0).astype(np.int64).tolist()).score)


def resample(counts: Counts) -> Counts:
    """Summed statistics of RESAMPLES corpora drawn with replacement: (resamples, statistics). Deterministic."""
    sentences = len(counts)
    rng = np.random.default_rng(SEED)
    return np.stack([counts[rng.integers(0, sentences, sentences)].sum(axis=0) for _ in range(RESAMPLES)])


def interval(metric: Any, counts: Counts) -> tuple[float, float]:
    """Lower and upper bound of the percentile bootstrap interval at CONFIDENCE_LEVEL."""
    scores = [total(metric, row[None]) for row in resample(counts)]
    low, high = np.quantile(scores, [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2])
    return float(low), float(high)
