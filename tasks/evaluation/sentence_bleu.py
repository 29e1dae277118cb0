"""Means of BLEU over single sentences, as Transformer-Workbench reports them: not comparable with corpus BLEU.

Nothing is smoothed, so a sentence without a common sequence of four words counts 0.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

from model.metric_names import BLEU_NLTK_SENTENCES, BLEU_SENTENCES
from tasks.evaluation.translation_metrics import Counts, Measured, ScoreMetric, measured_mean, sentence_scores
from tasks.lazy_libraries import np

SENTENCE_MEANS = (BLEU_SENTENCES, BLEU_NLTK_SENTENCES)
"""The entries of a score card that are means over sentences; they are not facts, so tags and MLflow omit them."""
ABOUT = "mean over sentences, unsmoothed, cased"


def sentence_means(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The entries ``SENTENCE_MEANS`` of the score card, by name."""
    means = {name: sentence_mean(name, hypotheses, references) for name in SENTENCE_MEANS}
    return {name: mean.entry(protocol, signature) for name, (mean, protocol, signature) in means.items()}


def sentence_mean(name: str, hypotheses: Sequence[str], references: Sequence[str]) -> tuple[Measured, str, str]:
    """The mean over sentences by one of ``SENTENCE_MEANS``, its protocol and its signature."""
    from sacrebleu.metrics import BLEU

    if name == BLEU_SENTENCES:
        own = ScoreMetric(name, f"13a, {ABOUT}", BLEU(smooth_method="none", force=True), prepared_by="mean")
        mean = measured_mean(sentence_scores(own.metric, own.count(hypotheses, references)))
        return mean, own.protocol, own.signature
    words = ScoreMetric(
        name, f"sentence_bleu of NLTK, words between white space, {ABOUT}", BLEU(tokenize="none", force=True)
    )
    scores = [100 * nltk_sentence_bleu(counts) for counts in words.count(hypotheses, references)]
    return measured_mean(np.array(scores)), words.protocol, "nltk:3.10.4|smooth:none|mean"


def nltk_sentence_bleu(counts: Counts) -> float:
    """NLTK 3.10.4's ``sentence_bleu``, from sacreBLEU's counts of a sentence; below 1e-76 without four common words."""
    written, expected, *grams = counts.tolist()
    common = grams[:4]
    if not common[0]:
        return 0.0
    shares = [found / of if found else sys.float_info.min for found, of in zip(common, grams[4:], strict=True)]
    return min(1.0, math.exp(1 - expected / written)) * math.exp(math.fsum(math.log(share) / 4 for share in shares))
