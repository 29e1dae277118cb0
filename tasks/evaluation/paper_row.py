"""Compare a run with the row of the paper that it reproduces.

Differences are computed only if corpus, set and protocol are the row's, and only for BLEU: perplexity depends on the
vocabulary.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from model.config import Model, count_parameters
from model.config.keying import unkeyed_default
from model.metric_names import BLEU, BLEU_PAPER, BLEU_PAPER_UNTWEAKED, PERPLEXITY
from tasks.evaluation.paper_figures import ROWS, SENTENCES, PaperFigures

BLEU_METRICS = (BLEU_PAPER, BLEU_PAPER_UNTWEAKED, BLEU)
"""BLEU of the card by protocol: paper, paper_untweaked (both English-German only) and 13a."""


@dataclass(frozen=True)
class PaperRow:
    """The row of the paper that a run reproduces, and how closely. Part of the key of the run's report."""

    row: str
    corpus: str
    """The run that provides text, sets and vocabulary; ``wmt14-ende`` for the paper's."""
    scale: int
    """The divisor of the widths of the paper's model."""
    exact: bool
    """Whether corpus, model, training and averaging are the paper's, without overrides."""
    set_name: str
    """The set that is compared with the paper's."""
    model: Model
    vocabulary: int
    """The requested size, for both sides together."""
    averaged: int
    cleaned: bool = unkeyed_default(False)
    """Whether the text of the paper's corpus was cleaned, which the paper does not name."""

    @property
    def published(self) -> PaperFigures:
        return ROWS[self.row]

    @property
    def conditions(self) -> str:
        """A sentence that says how the run differs from the paper's row; empty for an exact one."""
        if self.exact:
            return "" if self.published.figures else "A variant of base that the paper does not have."
        widths = f"widths divided by {self.scale}" if self.scale > 1 else "the paper's widths"
        text = ", cleaned text" if self.cleaned else ""
        about = f"corpus {self.corpus}{text}, {widths}, {self.model.norm}-norm"
        return f"Not the paper's setting: {about}; other settings may differ too."


@dataclass(frozen=True)
class PaperComparison:
    """One row: our existing figures by name, and the error message of a failed run."""

    row: PaperRow
    ours: Mapping[str, Any] = field(default_factory=dict)
    failure: str = ""

    @property
    def differences(self) -> dict[str, float]:
        """Ours minus the paper's, for figures that may be compared."""
        paper = self.row.published
        own = self.ours
        same_set = own.get("set") == paper.set_name and own.get("sentences") == SENTENCES[paper.set_name]
        if not (self.row.exact and same_set and paper.metric in own and paper.figures):
            return {}
        return {BLEU: round(own[paper.metric] - paper.figures[BLEU], 2)}


def compare_to_paper(
    row: PaperRow, training: Mapping[str, Any], card: Mapping[str, Any], failure: str = ""
) -> PaperComparison:
    """Compare a run by the facts of its training and the card of its set; either is empty if it does not exist.

    ``hours`` sums over all ranks, and counts GPU hours if ``device`` is cuda.
    ``flops`` are counted; ``device_flops`` is the hours times the device's peak rate (the paper takes
    a sustained one).
    """
    size = row.vocabulary
    ours: dict[str, Any] = {"set": row.set_name, "parameters": count_parameters(row.model, size, size), "pieces": size}
    names = ("parameters", "updates", "target_tokens", "flops", "seconds", "device", "ranks")
    ours |= {name: training[name] for name in names if name in training}
    if training:
        ours["hours"] = training["seconds"] * training.get("ranks", 1) / 3600
        if "peak_flops" in training:
            ours["device_flops"] = ours["hours"] * 3600 * training["peak_flops"]
    if card:
        ours |= {"sentences": card["sentences"], PERPLEXITY: card[PERPLEXITY]}
        for name in (name for name in BLEU_METRICS if name in card["scores"]):
            score = card["scores"][name]
            ours |= {name: score["score"], f"{name}_low": score["low"], f"{name}_high": score["high"]}
            ours |= {f"{name}_protocol": score["protocol"]}
    return PaperComparison(row, ours, failure)
