"""A pair's walk through a run as values: one step for each stage that has met it, in their order.

Values only: ``tasks.tracing.trace`` gathers them, ``flows.views.trace_view`` draws them.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Missing:
    """A stage of the walk that is not made yet, and why."""

    stage: str
    why: str


@dataclass(frozen=True)
class Published:
    """The pair as its files have it (stage ``download``, of a set ``prepare_sets``). ``line`` counts from 0."""

    stage: str
    folder: str
    files: tuple[str, str]
    line: int
    source: str
    target: str


@dataclass(frozen=True)
class RuleVerdict:
    """What one rule said; a rule behind the one that rejected the pair was not asked."""

    rule: str
    said: Literal["kept", "rejected", "not asked"]
    measured: str = ""
    allowed: str = ""


@dataclass(frozen=True)
class Cleaned:
    """The pair as ``clean`` left it. ``rejected_by`` is empty where it stayed; ``row`` counts from 0."""

    folder: str
    file: str
    row: int
    source: str
    target: str
    rejected_by: str
    verdicts: tuple[RuleVerdict, ...]
    stage: str = "clean"


@dataclass(frozen=True)
class Encoded:
    """The pieces of both sides by the run's vocabulary (§5.1), without bos and eos."""

    folder: str
    source_pieces: tuple[str, ...]
    source_ids: tuple[int, ...]
    target_pieces: tuple[str, ...]
    target_ids: tuple[int, ...]
    stage: str = "learn_bpe"


@dataclass(frozen=True)
class Sharded:
    """Where the pieces lie; ``row`` counts from 0, in that file."""

    folder: str
    file: str
    row: int
    stage: str = "shard"


@dataclass(frozen=True)
class Dropped:
    """The pair is beyond the limits of ``sharding``, so no shard holds it."""

    folder: str
    why: str
    stage: str = "shard"


@dataclass(frozen=True)
class Trained:
    """The update of the first epoch that the pair is part of, counted from 1, and how many pairs share it.

    ``epoch_updates`` are those of the whole epoch, ``updates`` those of the whole training: it may end earlier.
    """

    folder: str
    update: int
    pairs: int
    epoch_updates: int
    updates: int
    stage: str = "train"


@dataclass(frozen=True)
class Translated:
    """The pair's row of ``hypotheses.parquet``: log-probabilities are natural, pieces count eos."""

    folder: str
    hypothesis: str
    score: float
    log_probability: float
    pieces: int
    finished: bool
    reference_log_probability: float
    reference_pieces: int
    stage: str = "translate"


@dataclass(frozen=True)
class Beam:
    """One of the n best: ``score`` is ``log_probability`` over the length penalty of ``pieces``, eos counted (§6.1)."""

    text: str
    score: float
    log_probability: float
    pieces: int
    finished: bool


@dataclass(frozen=True)
class AttendedPiece:
    """The source piece that a written piece looks at most, and with which weight."""

    written: str
    source: str
    weight: float


@dataclass(frozen=True)
class Decoded:
    """The sentence translated once more, by itself: the beam at its end, and where the best hypothesis looked (§3.2.3).

    ``weights`` are its cross-attention: (layers, heads, written pieces, source pieces), eos counted on both sides.
    """

    folder: str
    beams: tuple[Beam, ...]
    source_pieces: tuple[str, ...]
    written_pieces: tuple[str, ...]
    weights: NDArray[np.float64]
    stage: str = "average"

    @property
    def looks(self) -> tuple[AttendedPiece, ...]:
        """By the mean over the heads of the upper half of the layers, as the report's picture has it."""
        mean = self.weights[len(self.weights) // 2 :].mean(axis=(0, 1))
        most = mean.argmax(axis=1)
        return tuple(
            AttendedPiece(piece, self.source_pieces[at], round(float(row[at]), 4))
            for piece, at, row in zip(self.written_pieces, most, mean, strict=True)
        )


@dataclass(frozen=True)
class Scored:
    """The pair's row of ``sentences.parquet``."""

    folder: str
    reference: str
    hypothesis: str
    bleu: float
    chrf: float
    stage: str = "score"


Step = Missing | Published | Cleaned | Encoded | Sharded | Dropped | Trained | Translated | Decoded | Scored


@dataclass(frozen=True)
class PairTrace:
    """All that a run knows of one pair. ``set_name`` is empty for a pair of the corpus."""

    run: str
    pair_id: str
    set_name: str
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
    """What is to be said of artifacts that were taken although an input of theirs is gone."""

    def as_json(self) -> dict[str, Any]:
        """Plain JSON; each step also says which it is."""
        return {**vars(self), "steps": [_plain(step) for step in self.steps]}


def _plain(step: Step) -> Mapping[str, Any]:
    form = {"step": type(step).__name__.lower(), **asdict(step)}
    if isinstance(step, Decoded):
        del form["weights"]
        form["looks"] = [asdict(look) for look in step.looks]
    return form
