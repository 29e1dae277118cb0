"""Published figures: the rows of the paper's Tables 2 and 3, and other systems on WMT14 English-German.

Only figures that the source prints. They are shown beside our results, each under its own protocol.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from model.metric_names import (
    BLEU,
    BLEU_INTL,
    BLEU_INTL_LC,
    BLEU_LC,
    BLEU_NLTK_SENTENCES,
    BLEU_PAPER,
    BLEU_PAPER_UNTWEAKED,
    BLEU_SENTENCES,
    PERPLEXITY,
)

DEV = "newstest2013"
TEST = "newstest2014_full"
SENTENCES = {DEV: 3_000, TEST: 3_003}
"""The paper does not say which newstest2014 it uses; we assume the full one, as most others do."""
GPU_HOURS = {"base": 96.0, "big": 672.0}
"""8 P100 for 12 hours and for 3.5 days (§5.2)."""
FLOPS = {"base": 3.3e18, "big": 2.3e19}
"""Table 2: the hours times the rate of a P100, estimated as 9.5e12 FLOP/s, so an upper bound of what is counted."""
NOT_IN_PAPER = 0
"""The table of rows that the paper does not have."""
METRICS = {
    "13a": BLEU,
    "13a, lower-cased": BLEU_LC,
    "international": BLEU_INTL,
    "international, lower-cased": BLEU_INTL_LC,
    "paper": BLEU_PAPER,
    "paper_untweaked": BLEU_PAPER_UNTWEAKED,
    "13a, mean of sentences": BLEU_SENTENCES,
    "NLTK, mean of sentences": BLEU_NLTK_SENTENCES,
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

    @property
    def protocol(self) -> str:
        """The protocol of the row's BLEU: ``paper`` for English-German, 13a for English-French."""
        return "paper" if self.languages == "English-German" else "13a"

    @property
    def metric(self) -> str:
        """The metric of our score cards that follows this protocol."""
        return METRICS[self.protocol]

    @property
    def sentences(self) -> int:
        return SENTENCES[self.set_name]


def _variant(name: str) -> PaperFigures:
    return PaperFigures(name, NOT_IN_PAPER, "English-German", DEV, 1, {})


def _table_3(name: str, perplexity: float, bleu: float, millions: int = 0, updates: int = 0) -> PaperFigures:
    figures = {PERPLEXITY: perplexity, BLEU: bleu}
    figures |= {"parameters": millions * 1e6} if millions else {}
    figures |= {"updates": updates, "gpu_hours": GPU_HOURS[name]} if updates else {}
    return PaperFigures(name, 3, "English-German", DEV, 1, figures)


def _table_2(name: str, kind: str, languages: str, bleu: float) -> PaperFigures:
    updates, averaged = {"base": (100_000, 5), "big": (300_000, 20)}[kind]
    figures = {BLEU: bleu, "updates": updates, "gpu_hours": GPU_HOURS[kind], "flops": FLOPS[kind]}
    return PaperFigures(name, 2, languages, TEST, averaged, figures)


ROWS = {
    row.name: row
    for row in (
        _table_3("base", 4.92, 25.8, 65, 100_000),
        _table_3("A1", 5.29, 24.9),
        _table_3("A4", 5.00, 25.5),
        _table_3("A16", 4.91, 25.8),
        _table_3("A32", 5.01, 25.4),
        _table_3("B16", 5.16, 25.1, 58),
        _table_3("B32", 5.01, 25.4, 60),
        _table_3("C2", 6.11, 23.7, 36),
        _table_3("C4", 5.19, 25.3, 50),
        _table_3("C8", 4.88, 25.5, 80),
        _table_3("C256", 5.75, 24.5, 28),
        _table_3("C1024", 4.66, 26.0, 168),
        _table_3("Cff1024", 5.12, 25.4, 53),
        _table_3("Cff4096", 4.75, 26.2, 90),
        _table_3("D0", 5.77, 24.6),
        _table_3("D2", 4.95, 25.5),
        _table_3("Dls0", 4.67, 25.3),
        _table_3("Dls2", 5.47, 25.7),
        _table_3("E", 4.92, 25.7),
        _table_3("big", 4.33, 26.4, 213, 300_000),
        _table_2("table2-base", "base", "English-German", 27.3),
        _table_2("table2-big", "big", "English-German", 28.4),
        _table_2("table2-base-enfr", "base", "English-French", 38.1),
        _table_2("table2-big-enfr", "big", "English-French", 41.8),
        *map(_variant, ("post-ln", "pre-ln", "own-greedy", "own-beam", "torch-greedy", "torch-beam")),
    )
}
"""By name: rows of Table 3 as the paper names them, rows of Table 2 with the prefix ``table2-``, and variants of base
that the paper does not have."""


@dataclass(frozen=True)
class PublishedScore:
    """One BLEU score of another system on WMT14 English-German; ``source`` is the page that prints it."""

    system: str
    bleu: str
    protocol: str
    set_name: str
    source: str
    notes: str = ""

    @property
    def metric(self) -> str:
        """The metric of our score cards to compare with; empty if none follows the protocol."""
        return METRICS.get(self.protocol, "")


_T2T = "Tensor2Tensor base, released checkpoint"
_TUTORIAL = "a-PyTorch-Tutorial-to-Transformers, base"
_FROM_PAPER = "arXiv 1706.03762, Table 2"
_FROM_T2T = "github.com/tensorflow/tensor2tensor/issues/317"
_FROM_FAIRSEQ = "github.com/facebookresearch/fairseq, examples/scaling_nmt/README.md"
_FROM_TUTORIAL = "github.com/sgrvinod/a-PyTorch-Tutorial-to-Transformers, README.md"
_FROM_OPENSEQ2SEQ = "github.com/NVIDIA/OpenSeq2Seq, docs/sources/source/machine-translation.rst"
_FROM_WORKBENCH = "scottweeden.online/machine-learning/transformer-from-scratch"
FULL = "newstest2014, full"
SHORT = "newstest2014, 2,737 lines"
EITHER = "newstest2014"
_OWN = "own layers"
_TORCH = "torch's layers"
WORKBENCH = tuple(
    PublishedScore(f"Transformer-Workbench, {layers}, {search}", bleu, protocol, set_name, _FROM_WORKBENCH)
    for set_name, layers, search, by_nltk, by_sacrebleu in (
        (DEV, _TORCH, "beam", "18.83", "21.67"),
        (DEV, _TORCH, "greedy", "17.56", "20.30"),
        (DEV, _OWN, "beam", "17.85", "20.56"),
        (DEV, _OWN, "greedy", "16.26", "18.82"),
        (EITHER, _TORCH, "beam", "21.19", "23.69"),
        (EITHER, _TORCH, "greedy", "19.38", "21.87"),
        (EITHER, _OWN, "beam", "20.13", "22.57"),
        (EITHER, _OWN, "greedy", "17.56", "19.97"),
    )
    for protocol, bleu in (("NLTK, mean of sentences", by_nltk), ("13a, mean of sentences", by_sacrebleu))
)
"""Its 16 figures: layers of its own (1 + 30 epochs) and of torch (1 + 25), two searches, two sets, two metrics."""
PEERS = (
    PublishedScore("paper, base", "27.3", "paper", EITHER, _FROM_PAPER, "mean of 5 checkpoints"),
    PublishedScore("paper, big", "28.4", "paper", EITHER, _FROM_PAPER, "mean of 20 checkpoints"),
    PublishedScore(_T2T, "27.52", "13a", EITHER, _FROM_T2T, "3,817,425 updates"),
    PublishedScore(_T2T, "28.33", "international", EITHER, _FROM_T2T, "the same model"),
    PublishedScore(_T2T, "28.85", "international, lower-cased", EITHER, _FROM_T2T, "the same model"),
    PublishedScore(_T2T, "29.02", "paper", EITHER, _FROM_T2T, "the same model"),
    PublishedScore("fairseq, big", "28.6", "13a", FULL, _FROM_FAIRSEQ, "large batches"),
    PublishedScore("fairseq, big", "29.29", "paper_untweaked", FULL, _FROM_FAIRSEQ, "the same hypotheses"),
    PublishedScore(_TUTORIAL, "25.1", "13a", FULL, _FROM_TUTORIAL, "100,000 updates, one 2080 Ti"),
    PublishedScore(_TUTORIAL, "25.6", "13a, lower-cased", FULL, _FROM_TUTORIAL, "the same model"),
    PublishedScore(_TUTORIAL, "25.9", "international", FULL, _FROM_TUTORIAL, "the same model"),
    PublishedScore(_TUTORIAL, "26.3", "international, lower-cased", FULL, _FROM_TUTORIAL, "the same model"),
    PublishedScore(_TUTORIAL, "26.49", "paper", FULL, _FROM_TUTORIAL, "the same model"),
    PublishedScore("OpenSeq2Seq, base", "26.4", "13a", SHORT, _FROM_OPENSEQ2SEQ, "sacrebleu -t wmt14"),
    PublishedScore("OpenSeq2Seq, big", "27.5", "13a", SHORT, _FROM_OPENSEQ2SEQ, "sacrebleu -t wmt14"),
    PublishedScore("JoeyNMT 2, base", "24.38", "13a", EITHER, "github.com/joeynmt/joeynmt, docs/source/benchmarks.rst"),
    *WORKBENCH,
    PublishedScore(
        "transformer-aiayn, base",
        "25.5",
        "international, lower-cased",
        DEV,
        "the article Transformer from Scratch of github.com/hrbigelow/transformer-aiayn",
        "by Tensor2Tensor's own BLEU, which equals it; perplexity 4.95; 100,000 updates, TPU",
    ),
)
"""One hypothesis file gives many scores: compare only within one protocol and one set."""
