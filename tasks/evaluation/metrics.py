"""What a hypothesis file is measured by: each measure a metric of sacreBLEU under a name and a protocol.

Every measure is kept as counts of each sentence: their sum gives the corpus score, their resampled sums the bootstrap
interval (Koehn 2004), one row of them the sentence score. Text goes in, numbers come out; files and cards are
``tasks.stages.score``'s business.
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
    """A metric of sacreBLEU under a name and a protocol; ``prepare`` is done to each line before it is counted."""

    name: str
    protocol: str
    metric: Any
    prepare: Callable[[str], str] = str
    prepared_by: str = ""

    def count(self, hypotheses: Sequence[str], references: Sequence[str]) -> Counts:
        """Sufficient statistics of each sentence (sentences, statistics) as sacreBLEU counts them."""
        written, expected = ([self.prepare(line) for line in lines] for lines in (hypotheses, references))
        return np.array(self.metric._extract_corpus_statistics(written, [expected]), dtype=np.float64)

    @property
    def signature(self) -> str:
        """What another needs to know to get the same number; complete once something was counted."""
        return "|".join(filter(None, [self.metric.get_signature().format(), self.prepared_by]))


def score_metrics(language: str) -> list[ScoreMetric]:
    """The card's measures for text in ``language`` (``de``); the first is the headline."""
    from sacrebleu.metrics import (  # a fifth of a second, which a run with nothing to do need not wait for
        BLEU,
        CHRF,
        TER,
    )

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
    """BLEU as the paper's authors took it: ``multi-bleu.perl`` over tokens of Moses' ``tokenizer.perl``, with the
    hyphens of compounds split off as ``##AT##-##AT##``, hypotheses and references alike (tensor2tensor's
    get_ende_bleu.sh). It counts more and easier matches than 13a does: never compare the two.
    """
    from sacrebleu.metrics import BLEU
    from sacremoses import MosesTokenizer

    moses = MosesTokenizer(lang=language)

    def tokens(line: str) -> str:
        # Moses escapes XML's characters within tokens, which changes no match.
        return split_compounds(moses.tokenize(line, return_str=True, escape=False))

    protocol = "of the paper: Moses tokens, hyphens of compounds split, cased, unsmoothed"
    made_by = f"moses:sacremoses-{version('sacremoses')}-{language}|hyphens:split"
    return ScoreMetric("bleu_paper", protocol, BLEU(tokenize="none", smooth_method="none", force=True), tokens, made_by)


def split_compounds(line: str) -> str:
    """``rich-text`` to ``rich ##AT##-##AT## text``, as perl's ``s{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g`` does."""
    return COMPOUND.sub(r"\1 ##AT##-##AT## \2", line)


def total(metric: Any, counts: Counts) -> float:
    """The score of these sentences together."""
    return float(metric._compute_score_from_stats(counts.sum(axis=0).astype(np.int64).tolist()).score)


def resample(counts: Counts) -> Counts:
    """Summed statistics of RESAMPLES corpora drawn with replacement (resamples, statistics); the same every time."""
    sentences = len(counts)
    rng = np.random.default_rng(SEED)
    return np.stack([counts[rng.integers(0, sentences, sentences)].sum(axis=0) for _ in range(RESAMPLES)])


def interval(metric: Any, counts: Counts) -> tuple[float, float]:
    """Lower and upper bound of the percentile bootstrap interval at LEVEL."""
    scores = [total(metric, row[None]) for row in resample(counts)]
    low, high = np.quantile(scores, [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2])
    return float(low), float(high)
