"""Published figures: rows of the paper's Tables 2 and 3, and scores of other systems on WMT14 English-German.

``paper_rows.tsv`` and ``published_scores.tsv`` hold only figures that the source prints. They are shown beside our
results, each under its own protocol.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from model import metric_names
from tasks.tables import read_table

FOLDER = Path(__file__).parent
DEV = "newstest2013"
TEST = "newstest2014_full"
SENTENCES = {DEV: 3_000, TEST: 3_003}
"""The paper does not say which newstest2014 it uses; we assume the full one, as most others do."""
NOT_IN_PAPER = 0
"""The table of rows that the paper does not have."""
METRICS = {
    "13a": metric_names.BLEU,
    "13a, lower-cased": metric_names.BLEU_LC,
    "international": metric_names.BLEU_INTL,
    "international, lower-cased": metric_names.BLEU_INTL_LC,
    "paper": metric_names.BLEU_PAPER,
    "paper_untweaked": metric_names.BLEU_PAPER_UNTWEAKED,
    "13a, mean of sentences": metric_names.BLEU_SENTENCES,
    "NLTK, mean of sentences": metric_names.BLEU_NLTK_SENTENCES,
}
"""The metric of our score cards that follows a protocol of published figures."""


@dataclass(frozen=True)
class PaperFigures:
    """A row of the paper: table, languages, set, and the figures that the table prints.

    ``figures`` holds ``bleu`` (by the protocol ``protocol``) and, where printed, ``perplexity`` (per word piece),
    ``parameters``, ``updates``, ``gpu_hours`` and ``flops`` (of the whole training). ``averaged`` counts
    the checkpoints (§6.1; §6.2: one for Table 3).
    """

    name: str
    table: int
    languages: str
    set_name: str
    averaged: int
    figures: Mapping[str, float] = field(hash=False)
    about: str = ""
    """Describes a variant that the paper does not have."""

    @property
    def protocol(self) -> str:
        """The protocol of the row's BLEU: ``paper`` for English-German, 13a for English-French."""
        return "paper" if self.languages == "English-German" else "13a"

    @property
    def metric(self) -> str:
        return METRICS[self.protocol]


FIGURES = (metric_names.PERPLEXITY, metric_names.BLEU, "parameters", "updates", "gpu_hours", "flops")
"""The columns of ``paper_rows.tsv`` with figures. ``gpu_hours``: 8 P100 for 12 hours and for 3.5 days (§5.2).
``flops`` (Table 2): these hours times the rate of a P100, estimated as 9.5e12 FLOP/s, so an upper bound of what is
counted."""

ROWS = {
    row["name"]: PaperFigures(
        row["name"],
        int(row["table"]),
        row["languages"],
        row["set"],
        int(row["averaged"]),
        {name: int(row[name]) if row[name].isdecimal() else float(row[name]) for name in FIGURES if row[name]},
        row["about"],
    )
    for row in read_table(FOLDER / "paper_rows.tsv")
}
"""By name: rows of Table 3 as the paper names them, rows of Table 2 with the prefix ``table2-``, and variants of base
that the paper does not have."""


@dataclass(frozen=True)
class PublishedScore:
    """One BLEU score of another system on WMT14 English-German, with the page that prints it and our preset of it."""

    system: str
    bleu: str
    protocol: str
    set_name: str
    source: str
    notes: str = ""
    preset: str = ""

    @property
    def metric(self) -> str:
        """The metric of our score cards to compare with; empty if none follows the protocol."""
        return METRICS.get(self.protocol, "")

    @property
    def card_set(self) -> str:
        """The set of our score cards to compare with."""
        return TEST if self.set_name.startswith(TEST.partition("_")[0]) else self.set_name


PEERS = tuple(PublishedScore(**row) for row in read_table(FOLDER / "published_scores.tsv"))
"""One hypothesis file gives many scores: compare only within one protocol and one set. The 16 figures of
Transformer-Workbench cover its own layers (1 + 30 epochs) and torch's (1 + 25), two searches, sets and metrics."""
