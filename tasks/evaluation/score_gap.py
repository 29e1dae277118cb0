"""Measures why a score differs from a claim: steps that lead from the claim to the score and sum to the difference.

The cost of a cause is the score minus the score without it, with an interval by paired bootstrap over sentences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from model.config.keying import unkeyed
from model.metric_names import BLEU
from tasks.evaluation.sentence_bleu import SENTENCE_MEANS, sentence_mean
from tasks.evaluation.translation_metrics import Measured, measured, score_metric
from tasks.lazy_libraries import pl


@dataclass(frozen=True)
class Claim:
    """The expected score; ``metric`` and ``set_name`` are names in our score cards, "" if not known."""

    name: str
    score: float
    metric: str = ""
    set_name: str = ""
    source: str = ""


@dataclass(frozen=True)
class SettingDifference:
    """A setting in which a training differs from the claim's, and the command that trains with the claim's value."""

    name: str
    claimed: str
    here: str
    command: str = ""
    cost: str = unkeyed("")
    """What the command would cost, or why there is no command."""


class Condition(NamedTuple):
    """What is scored: translations, references, a metric of the score card."""

    written: Sequence[str]
    expected: Sequence[str]
    metric: str = BLEU

    @staticmethod
    def of(sentences: pl.DataFrame, metric: str) -> Condition:
        return Condition(sentences["hypothesis"].to_list(), sentences["reference"].to_list(), metric)


def measure(what: Condition, language: str) -> Measured:
    """The score of translations into ``language``."""
    if what.metric in SENTENCE_MEANS:
        return sentence_mean(what.metric, what.written, what.expected)[0]
    chosen = score_metric(what.metric, language)
    return measured(chosen.metric, chosen.count(what.written, what.expected))


def explain(
    ours: Measured, undone: Mapping[str, Measured], together: Measured, claim: Measured
) -> list[dict[str, Any]]:
    """The steps from the claim to our score, the largest first, then the interaction and what stays unexplained.

    ``undone`` maps the words for a cause to our score without it; ``together`` is our score without all causes.
    """
    steps: list[dict[str, Any]] = [
        {"about": about, **(ours - without).numbers, "without": without.score} for about, without in undone.items()
    ]
    steps.sort(key=lambda step: -abs(step["score"]))
    if len(undone) > 1:
        rest = ours - together
        for without in undone.values():
            rest -= ours - without
        about = f"interaction of these {len(undone)}: what they cost together beyond the sum"
        steps.append({"about": about, **rest.numbers})
    unexplained = f"unexplained: our score{' with all of these undone' if undone else ''}, minus the claim"
    return [*steps, {"about": unexplained, **(together - claim).numbers}]
