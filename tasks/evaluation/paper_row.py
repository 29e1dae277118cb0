"""A run beside the row of the paper that it reproduces: what may be compared, and what only stands beside.

In come the row, the training's facts and the card of its set; out goes a Line of numbers. A difference is taken where
corpus, set and protocol are the paper's, and there of BLEU alone: a perplexity is of its own vocabulary.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from model.config import Model
from model.config.parameter_count import parameters
from tasks.evaluation.paper_figures import ROWS, PaperFigures

PROTOCOL = "bleu_paper"
"""The paper's among the card's measures."""


@dataclass(frozen=True)
class PaperRow:
    """Which row of the paper a run is, and how far it is the paper's own. Enters the key of the run's report."""

    row: str
    corpus: str
    """The run whose text, sets and vocabulary these are; ``wmt14-ende`` for the paper's."""
    scale: int
    """What the widths of the paper's model were divided by."""
    exact: bool
    """Corpus, model, training and averaging are the paper's, nothing was overridden."""
    set_name: str
    """The set that stands against the paper's."""
    model: Model
    vocabulary: int
    """Pieces that were asked for, of both sides together."""
    averaged: int

    @property
    def published(self) -> PaperFigures:
        return ROWS[self.row]

    @property
    def conditions(self) -> str:
        """A sentence on what makes this run other than the paper's row; empty where nothing does."""
        if self.exact:
            return ""
        widths = f"widths divided by {self.scale}" if self.scale > 1 else "the paper's widths"
        return f"Not the paper's setting: corpus {self.corpus}, {widths}, {self.model.norm}-norm."


@dataclass(frozen=True)
class PaperComparison:
    """One row: the paper's figures, ours by name as far as there are any, and the failure that ended it."""

    row: PaperRow
    ours: Mapping[str, Any] = field(default_factory=dict)
    failure: str = ""

    @property
    def differences(self) -> dict[str, float]:
        """Ours less the paper's, of what may be compared."""
        paper, own = self.row.published, self.ours
        same_set = own.get("set") == paper.set_name and own.get("sentences") == paper.sentences
        if not (self.row.exact and same_set and PROTOCOL in own):
            return {}
        return {"bleu": round(own[PROTOCOL] - paper.figures["bleu"], 2)}


def compare_to_paper(
    row: PaperRow, training: Mapping[str, Any], card: Mapping[str, Any], failure: str = ""
) -> PaperComparison:
    """The line of a run from its training's facts and its set's card; either is empty where it was not reached.

    ``hours`` are of all ranks together, of GPUs where ``device`` is cuda; ``gpu_kwh`` is there where it was measured.
    """
    size = row.vocabulary
    ours: dict[str, Any] = {"set": row.set_name, "parameters": parameters(row.model, size, size), "pieces": size}
    told = ("parameters", "updates", "target_tokens", "seconds", "device", "ranks", "gpu_kwh")
    ours |= {name: training[name] for name in told if name in training}
    if training:
        ours["hours"] = training["seconds"] * training.get("ranks", 1) / 3600
    if card:
        ours |= {"sentences": card["sentences"], "perplexity": card["perplexity"]}
        for name in (PROTOCOL, "bleu"):
            score = card["scores"][name]
            ours |= {name: score["score"], f"{name}_low": score["low"], f"{name}_high": score["high"]}
            ours |= {f"{name}_protocol": score["protocol"]}
    return PaperComparison(row, ours, failure)
