"""Computes corpus BLEU (Papineni et al. 2002) of plain text, to monitor a training; without torch.

A training job has no sacreBLEU. ``tasks/stages/score.py`` computes the final scores, with signature and intervals. This
module splits words more coarsely than any published protocol, so never compare its scores with others.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence

MAX_ORDER = 4
WORD = re.compile(r"\w+|[^\w\s]")

Ngrams = Counter[tuple[str, ...]]


def tokenize(text: str) -> list[str]:
    """Split text into words and single punctuation marks."""
    return WORD.findall(text)


def bleu(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> float:
    """Return BLEU in percent of tokenised hypotheses, with one reference each: n-grams up to 4, brevity penalty.

    The first n-gram order without a match counts as 1/2 match, the next one as 1/4, … (sacreBLEU's "exp"). BLEU is 0 if
    no order has a match, or if no hypothesis is long enough for an order.
    """
    matches = [0] * MAX_ORDER
    totals = [0] * MAX_ORDER
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        for n in range(1, MAX_ORDER + 1):
            written_ngrams = ngrams(hypothesis, n)
            reference_ngrams = ngrams(reference, n)
            matches[n - 1] += (written_ngrams & reference_ngrams).total()
            totals[n - 1] += written_ngrams.total()
    if not any(matches) or not all(totals):
        return 0.0
    logs = 0.0
    unseen = 1.0
    for match, total in zip(matches, totals, strict=True):
        if match == 0:
            unseen /= 2
        logs += math.log((match or unseen) / total)
    written = sum(map(len, hypotheses))
    wanted = sum(map(len, references))
    return 100 * math.exp(min(0.0, 1 - wanted / written) + logs / MAX_ORDER)


def ngrams(tokens: Sequence[str], n: int) -> Ngrams:
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))
