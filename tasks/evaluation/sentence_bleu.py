"""Means of BLEU over single sentences, as Transformer-Workbench reports them: not comparable with corpus BLEU.

Nothing is smoothed, so a sentence without a common sequence of four words counts 0.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from model.metric_names import BLEU_NLTK_SENTENCES, BLEU_SENTENCES
from tasks.evaluation.translation_metrics import Measured, ScoreMetric, measured_mean, sentence_scores
from tasks.lazy_libraries import np

SENTENCE_MEANS = (BLEU_SENTENCES, BLEU_NLTK_SENTENCES)
"""The entries of a score card that are means over sentences; they are not facts, so tags and MLflow omit them."""
NLTK = "3.10.4"
"""The NLTK release that ``nltk_sentence_bleu`` reproduces."""
ABOUT = "mean over sentences, unsmoothed, cased"
LONGEST = 4
"""Words of the longest sequences that BLEU counts."""


def sentence_means(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The entries ``SENTENCE_MEANS`` of the score card, by name."""
    by_sacrebleu, own = sentence_mean(hypotheses, references)
    sides = zip(hypotheses, references, strict=True)
    by_nltk = [100 * nltk_sentence_bleu(written.split(), expected.split()) for written, expected in sides]
    nltk = f"sentence_bleu of NLTK, words between white space, {ABOUT}"
    return {
        BLEU_SENTENCES: by_sacrebleu.entry(own.protocol, own.signature),
        BLEU_NLTK_SENTENCES: measured_mean(np.array(by_nltk)).entry(nltk, f"nltk:{NLTK}|smooth:none|mean"),
    }


def sentence_mean(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[Measured, ScoreMetric]:
    """The mean over sentences by 13a, and its metric."""
    from sacrebleu.metrics import BLEU

    own = ScoreMetric(BLEU_SENTENCES, f"13a, {ABOUT}", BLEU(smooth_method="none", force=True), prepared_by="mean")
    return measured_mean(sentence_scores(own.metric, own.count(hypotheses, references))), own


def nltk_sentence_bleu(hypothesis: Sequence[str], reference: Sequence[str]) -> float:
    """NLTK's ``sentence_bleu([reference], hypothesis)``, from 0 to 1: below 1e-76 without four common words in turn."""
    logarithms = []
    for length in range(1, LONGEST + 1):
        written, expected = (_sequences(words, length) for words in (hypothesis, reference))
        common = (written & expected).total()
        if length == 1 and not common:
            return 0.0
        logarithms.append(math.log(common / written.total() if common else sys.float_info.min) / LONGEST)
    brevity = min(1.0, math.exp(1 - len(reference) / len(hypothesis)))
    return brevity * math.exp(math.fsum(logarithms))


def _sequences(words: Sequence[str], length: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[begin:] for begin in range(length)), strict=False))
