"""The steps of one pair through a run, as dataclasses: one per stage that handled the pair, in order.

``tasks.tracing.trace`` collects them, ``flows.views.trace_view`` prints them.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from model.decoding.translation import Hypothesis


@dataclass(frozen=True)
class Missing:
    """A stage without an artifact, and why."""

    stage: str
    why: str


@dataclass(frozen=True)
class Published:
    """The pair as published (stage ``download``, or ``prepare_sets`` for a set). ``line`` counts from 0."""

    stage: str
    folder: str
    files: tuple[str, str]
    line: int
    source: str
    target: str


@dataclass(frozen=True)
class RuleVerdict:
    """The verdict of one rule; rules after the one that rejected the pair were not applied (``not asked``)."""

    rule: str
    said: Literal["kept", "rejected", "not asked"]
    measured: str = ""
    allowed: str = ""


@dataclass(frozen=True)
class Cleaned:
    """The pair as ``clean`` wrote it. ``rejected_by`` is empty for a kept pair; ``row`` counts from 0."""

    folder: str
    file: str
    row: int
    source: str
    target: str
    rejected_by: str
    verdicts: tuple[RuleVerdict, ...]
    stage: str = "clean"


@dataclass(frozen=True)
class Mixed:
    """A monolingual line as the target of a synthetic pair; ``source`` is empty if the line has no translation."""

    folder: str
    source: str
    target: str
    stage: str = "mix"


@dataclass(frozen=True)
class TeacherTranslation:
    """A translation of a training source by the teacher, and its sentence BLEU against the reference."""

    text: str
    bleu: float
    taken: bool


@dataclass(frozen=True)
class Distilled:
    """The teacher's translations that ended, best by score first; ``target`` is the one taken, empty without one."""

    folder: str
    translations: tuple[TeacherTranslation, ...]
    target: str
    stage: str = "extract_best"


@dataclass(frozen=True)
class Encoded:
    """The pieces of both sides in the run's vocabulary (§5.1), without bos and eos."""

    folder: str
    source_pieces: tuple[str, ...]
    source_ids: tuple[int, ...]
    target_pieces: tuple[str, ...]
    target_ids: tuple[int, ...]
    stage: str = "learn_bpe"


@dataclass(frozen=True)
class Sharded:
    """The shard that holds the pieces; ``row`` counts from 0 within the file."""

    folder: str
    file: str
    row: int
    stage: str = "shard"


@dataclass(frozen=True)
class Dropped:
    """The pair is outside the limits of ``sharding``, so no shard holds it."""

    folder: str
    why: str
    stage: str = "shard"


@dataclass(frozen=True)
class Trained:
    """The update of the first epoch whose batch holds the pair, counted from 1, and the size of the batch in pairs.

    ``epoch_updates`` counts the updates of the epoch, ``updates`` those of the training, which may end earlier.
    """

    folder: str
    update: int
    pairs: int
    epoch_updates: int
    updates: int
    stage: str = "train"


@dataclass(frozen=True)
class Translated:
    """The row of ``hypotheses.parquet``: natural log-probabilities; pieces include eos."""

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
class BeamRow:
    """A hypothesis after a step of the search: ``pieces`` count the last one, ``piece``, and eos.

    ``rank`` is its place in the beam, from 1, and 0 if it has ended; ``continues`` is the rank of the hypothesis of the
    step before that it extends by ``piece``, 0 in the first step. ``score`` is ``log_probability`` over the length
    penalty of its present length.
    """

    rank: int
    continues: int
    piece: str
    text: str
    score: float
    log_probability: float
    pieces: int
    ended: bool


@dataclass(frozen=True)
class AttendedPiece:
    """The source piece that a target piece attends to most, and the weight."""

    written: str
    source: str
    weight: float


@dataclass(frozen=True)
class Decoded:
    """The sentence decoded again, alone: each step of the search, and the cross-attention of the best hypothesis
    (§3.2.3).

    ``beams`` are all hypotheses that ended, best first, also those beyond the beam, and after them cut ones if fewer
    ended. ``steps`` has, for each step, the live hypotheses and those that ended in it, the likeliest first.
    ``weights`` has the shape (layers, heads, target pieces, source pieces), including eos on both sides.
    """

    folder: str
    beams: tuple[Hypothesis, ...]
    steps: tuple[tuple[BeamRow, ...], ...]
    source_pieces: tuple[str, ...]
    written_pieces: tuple[str, ...]
    weights: NDArray[np.float64]
    stage: str = "average"

    @property
    def attended(self) -> tuple[AttendedPiece, ...]:
        """From the mean over the heads of the upper half of the layers, as in the report's picture."""
        mean = self.weights[len(self.weights) // 2 :].mean(axis=(0, 1))
        return tuple(
            AttendedPiece(piece, self.source_pieces[row.argmax()], round(float(row.max()), 4))
            for piece, row in zip(self.written_pieces, mean, strict=True)
        )


@dataclass(frozen=True)
class Scored:
    """The row of ``sentences.parquet``."""

    folder: str
    reference: str
    hypothesis: str
    bleu: float
    chrf: float
    stage: str = "score"


Step = (
    Missing
    | Published
    | Cleaned
    | Mixed
    | Distilled
    | Encoded
    | Sharded
    | Dropped
    | Trained
    | Translated
    | Decoded
    | Scored
)


@dataclass(frozen=True)
class PairTrace:
    """Everything that a run holds about one pair. ``set_name`` is empty for a pair of the corpus."""

    run: str
    pair_id: str
    set_name: str
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
    """One line for each artifact that was read although the next run may replace it."""

    def as_json(self) -> dict[str, Any]:
        """Plain JSON; ``step`` names the class of each step, in lower case."""
        return {**vars(self), "steps": [_step_as_json(step) for step in self.steps]}


def _step_as_json(step: Step) -> dict[str, Any]:
    values = {"step": type(step).__name__.lower(), **asdict(step)}
    if isinstance(step, Decoded):
        del values["weights"]
        values["beams"] = [beam.as_json() for beam in step.beams]
        values["attended"] = [asdict(piece) for piece in step.attended]
    return values
