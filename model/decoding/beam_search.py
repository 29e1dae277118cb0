"""Batched beam search (§6.1) over any ``IncrementalDecoder``: a Transformer, or a table of scores in the tests.

    log P(Y | X) = sum over t of log p(y_t | y_1 … y_t-1, X)      for the pieces Y; the last is eos
    penalty(Y)   = ((5 + |Y|) / 6)^alpha
    score(Y)     = log P(Y | X) / penalty(Y)                      explained in docs/annotated/index.md

At each step, the search takes a sentence's best K continuations: those that end in eos are finished. The best K
continuations without eos stay live. A sentence is done when K hypotheses are finished, at the maximum length, or when
no live hypothesis can beat the ``n_best`` finished ones. So beam 1 is greedy search, and the early stop never changes a
result. Several hypotheses can finish in the last step, up to 2K - 1 in total, so ``n_best`` may exceed K.
"""

# Equal candidates are ordered by hypothesis and token, so the result does not depend on the rest of the batch.
#
# Shape suffixes:
#     B live sentences     W hypotheses per sentence: 1 before the first step, then K, the beam
#     R rows, B * W; the hypotheses of a sentence are adjacent     N vocabulary
#     C candidates of a row     X candidates of a sentence, W * C     T tokens so far     S source positions
#     E models of an ensemble

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..config import Decoding
from ..config.special_pieces import BOS, EOS, PAD
from .translation import Hypothesis

BLOCK = 32
"""Columns per block in ``blockwise_topk``."""
MIN_BLOCKWISE = 1 << 16
"""With fewer values ``torch.topk`` is faster than a search of blocks."""
FORBIDDEN = (PAD, BOS)
"""Tokens that never occur in an output."""
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class IncrementalDecoder(Protocol):
    """The state of a model during a search: one row per hypothesis, the same number of rows for each sentence."""

    def advance(self, pieces_R: Tensor) -> Tensor:
        """Append a token to each row (R); return the logits of the next token (R, N)."""

    def reorder(self, rows_R: Tensor) -> None:
        """Make row i continue row ``rows_R[i]``; there may be more rows than before."""

    def keep_sentences(self, sentences_B: Tensor) -> None:
        """Drop all other sentences; ``reorder`` follows, with the row numbers from before this call."""


class Ensemble:
    """Combines models with the same vocabulary to one ``IncrementalDecoder``: the mean of their probabilities."""

    def __init__(self, steps: Sequence[IncrementalDecoder]) -> None:
        """``steps`` are the models' decoders over the same source sentences."""
        self.steps = steps

    def advance(self, pieces_R: Tensor) -> Tensor:
        """Append a token to each row (R); return logits (R, N) whose softmax is the mean over the E models."""
        log_p_ERN = torch.stack([step.advance(pieces_R).log_softmax(dim=1) for step in self.steps])
        # The sum is not divided by E, because the softmax cancels a constant factor.
        return log_p_ERN.logsumexp(dim=0)

    def reorder(self, rows_R: Tensor) -> None:
        for step in self.steps:
            step.reorder(rows_R)

    def keep_sentences(self, sentences_B: Tensor) -> None:
        for step in self.steps:
            step.keep_sentences(sentences_B)


@dataclass(frozen=True)
class SearchConstraints:
    """Minimum and maximum length of a sentence's hypotheses, including eos."""

    max_length: int
    min_length: int = 1


@dataclass(frozen=True)
class BeamEntry:
    """A hypothesis after a step; it is finished or still live."""

    hypothesis: Hypothesis
    parent: int
    """The number of the previous step's hypothesis that it continues, from 0 in the order of the beam."""


StepObserver = Callable[[int, Sequence[BeamEntry]], None]
"""A function called after each step with the number of a sentence and its hypotheses, the likeliest first."""


def length_penalty(length: int, decoding: Decoding) -> float:
    """Return ((5 + |Y|) / 6) ** alpha (§6.1; Wu et al. 2016, equation 14), or |Y| ** alpha for ``length``."""
    base = length if decoding.length_penalty == "length" else (5 + length) / 6
    return float(base**decoding.alpha)


@torch.inference_mode()
def beam_search(
    step: IncrementalDecoder,
    constraints: Sequence[SearchConstraints],
    decoding: Decoding,
    device: torch.device,
    n_best: int = 1,
    observe: StepObserver | None = None,
) -> list[list[Hypothesis]]:
    """Return the ``n_best`` best hypotheses of each sentence, best first, in the order of the sentences (§6.1).

    If fewer are finished, the likeliest unfinished ones follow, up to the beam. The softmax includes the tokens that
    are forbidden or violate a constraint. Raises ValueError if ``n_best`` exceeds the number that the beam can finish,
    FloatingPointError for scores that are NaN.
    """
    decoding.check_n_best(n_best)
    state = BeamState(constraints, decoding, n_best)
    pieces_R = torch.full((len(constraints),), BOS, device=device)
    while state.live:
        log_p_RN = step.advance(pieces_R).log_softmax(dim=1)
        # A step waits for the device once, for its candidates: the host selects among these few faster.
        found = state.choose(log_p_RN)
        ended = state.finish(found)
        live = state.keep_live(found)
        if observe is not None:
            state.report(observe, ended, live)
        sentences = len(state.live)
        stay = state.end_step(live.log_p_BX)
        if not stay:
            break
        rows_R = live.rows_BX[stay].reshape(-1)
        moved = not np.array_equal(rows_R, np.arange(live.rows_BX.size))
        # One transfer copies the selection to the device.
        chosen = torch.from_numpy(np.concatenate([stay, rows_R, live.pieces_BX[stay].reshape(-1)])).to(device)
        stay_B, chosen_R, pieces_R = torch.split(chosen, [len(stay), len(rows_R), len(rows_R)])
        if len(stay) < sentences:
            step.keep_sentences(stay_B)
        if moved:
            step.reorder(chosen_R)
    return state.best


def candidates(log_p_RN: Tensor, beam: int) -> tuple[Floats, Ints]:
    """Select the best next tokens of each row: log-probabilities (R, C), descending, and ids (R, C).

    C is the beam + 1 (eos) + the forbidden tokens, which get minus infinity. Raises FloatingPointError for NaN.
    """
    count = min(beam + 1 + len(FORBIDDEN), log_p_RN.shape[1])
    scores_RC, pieces_RC = stable_topk(log_p_RN, count)
    if np.isnan(scores_RC).any():
        raise FloatingPointError("the model gives scores that are not finite: its weights have diverged")
    for piece in FORBIDDEN:
        scores_RC[pieces_RC == piece] = -math.inf
    return scores_RC, pieces_RC


def stable_topk(values_RN: Tensor, count: int) -> tuple[Floats, Ints]:
    """Return the ``count`` greatest values of each row, descending, and their columns; equal values by column.

    ``torch.topk`` does not define which of equal values it takes, so its result could depend on the batch.
    """
    available = min(count + 1, values_RN.shape[1])
    values_RC, columns_RC = to_host(*blockwise_topk(values_RN, available))
    order_RC = np.lexsort((columns_RC, -values_RC))
    row_R1 = np.arange(len(order_RC))[:, None]
    values_RC = values_RC[row_R1, order_RC]
    columns_RC = columns_RC[row_R1, order_RC]
    if available > count:
        tied = np.flatnonzero(values_RC[:, count - 1] == values_RC[:, count])
        if len(tied):
            values_TN, columns_TN = values_RN[torch.from_numpy(tied)].sort(dim=1, descending=True, stable=True)
            values_RC[tied], columns_RC[tied] = to_host(values_TN[:, :available], columns_TN[:, :available])
    return values_RC[:, :count], columns_RC[:, :count]


def to_host(values_RC: Tensor, columns_RC: Tensor) -> tuple[Floats, Ints]:
    """Copy candidates to the host in one transfer, because each transfer waits for the device."""
    both = torch.stack([values_RC.double(), columns_RC.double()]).cpu().numpy()
    return both[0], both[1].astype(np.int64)


def blockwise_topk(values_RN: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Compute ``values_RN.topk(count)`` by searching only the blocks with the greatest maxima.

    For many values this is six times faster on a CPU."""
    blocks = values_RN.shape[1] // BLOCK
    if blocks <= count or values_RN.numel() < MIN_BLOCKWISE:
        return values_RN.topk(count, dim=1)
    covered = blocks * BLOCK
    device = values_RN.device
    best_RC = values_RN[:, :covered].reshape(-1, blocks, BLOCK).amax(dim=2).topk(count, dim=1).indices
    columns_RX = (best_RC[:, :, None] * BLOCK + torch.arange(BLOCK, device=device)).flatten(1)
    rest_RX = torch.arange(covered, values_RN.shape[1], device=device).expand(len(values_RN), -1)
    columns_RX = torch.cat([columns_RX, rest_RX], dim=1)
    values_RC, order_RC = values_RN.gather(1, columns_RX).topk(count, dim=1)
    return values_RC, columns_RX.gather(1, order_RC)


class Continuations(NamedTuple):
    """Hypotheses of each sentence with one more token: log-probability, the token, and the row that they continue."""

    log_p_BX: Floats
    pieces_BX: Ints
    rows_BX: Ints

    def take(self, places_BX: Ints) -> "Continuations":
        """Return each sentence's continuations at ``places_BX``, in this order."""
        sentence_B1 = np.arange(len(places_BX))[:, None]
        return Continuations._make(values_BX[sentence_B1, places_BX] for values_BX in self)


class BeamState:
    """The live hypotheses of the sentences that are not done, and the best finished hypotheses of all sentences.

    Methods number only the live sentences; ``best`` is in the order of ``constraints``.
    """

    def __init__(self, constraints: Sequence[SearchConstraints], decoding: Decoding, n_best: int) -> None:
        self.constraints = constraints
        self.decoding = decoding
        self.n_best = n_best
        self.live = list(range(len(constraints)))
        self.log_p_BW: Floats = np.zeros((len(constraints), 1))
        self.written_BWT: Ints = np.empty((len(constraints), 1, 0), dtype=np.int64)
        """The tokens of the live hypotheses."""
        self.best: list[list[Hypothesis]] = [[] for _ in constraints]
        self.finished = [0] * len(constraints)
        self.greatest_minimum = max((each.min_length for each in constraints), default=1)
        self.length = 1
        """|Y| of the hypotheses that finish in this step."""

    def choose(self, log_p_RN: Tensor) -> Continuations:
        """Return the allowed continuations that can be among the best of each sentence, the likeliest first."""
        sentences, width = self.log_p_BW.shape
        scores_RC, pieces_RC = candidates(log_p_RN, self.decoding.beam)
        if self.length < self.greatest_minimum:
            too_short_B = [self.length < self.constraints[number].min_length for number in self.live]
            scores_RC[np.repeat(too_short_B, width)[:, None] & (pieces_RC == EOS)] = -math.inf
        log_p_BX = (self.log_p_BW.reshape(-1, 1) + scores_RC).reshape(sentences, -1)
        # Stable: equal candidates stay in the order of hypothesis and token.
        order_BX = np.argsort(-log_p_BX, axis=1, kind="stable")
        rows_BX = np.arange(log_p_BX.size).reshape(sentences, -1) // scores_RC.shape[1]
        return Continuations(log_p_BX, pieces_RC.reshape(sentences, -1), rows_BX).take(order_BX)

    def finish(self, found: Continuations) -> list[list[BeamEntry]]:
        """Finish the hypotheses of the beam that end in eos, and return them by sentence."""
        log_p_BK, pieces_BK, rows_BK = (values_BX[:, : self.decoding.beam] for values_BX in found)
        ended_BK = (pieces_BK == EOS) & (log_p_BK > -math.inf)
        penalty = length_penalty(self.length, self.decoding)
        entries: list[list[BeamEntry]] = [[] for _ in self.live]
        endings = zip(
            np.nonzero(ended_BK)[0].tolist(), rows_BK[ended_BK].tolist(), log_p_BK[ended_BK].tolist(), strict=True
        )
        for sentence, row, log_p in endings:
            number = self.live[sentence]
            parent = row % self.written_BWT.shape[1]
            pieces = tuple(self.written_BWT[sentence, parent].tolist())
            ended = Hypothesis(pieces, self.length, log_p, log_p / penalty, finished=True)
            self.finished[number] += 1
            # Stable: for equal scores, the hypothesis found first comes first.
            self.best[number] = sorted([*self.best[number], ended], key=lambda each: -each.score)[: self.n_best]
            entries[sentence].append(BeamEntry(ended, parent))
        return entries

    def keep_live(self, found: Continuations) -> Continuations:
        """Return the best ``beam`` continuations without eos; they are live now."""
        ends_BX = found.pieces_BX == EOS
        live_BW = np.argsort(ends_BX, axis=1, kind="stable")[:, : self.decoding.beam]
        live = found._replace(log_p_BX=np.where(ends_BX, -math.inf, found.log_p_BX)).take(live_BW)
        before_RT = self.written_BWT.reshape(self.log_p_BW.size, -1)
        self.written_BWT = np.concatenate([before_RT[live.rows_BX], live.pieces_BX[:, :, None]], axis=2)
        return live

    def report(self, observe: StepObserver, ended: Sequence[Sequence[BeamEntry]], live: Continuations) -> None:
        """Call ``observe`` with the hypotheses of each sentence; live ones get the score of their current length."""
        penalty = length_penalty(self.length, self.decoding)
        width = self.log_p_BW.shape[1]
        for sentence, number in enumerate(self.live):
            entries = list(ended[sentence])
            of_sentence = zip(live.log_p_BX[sentence].tolist(), live.rows_BX[sentence].tolist(), strict=True)
            for (log_p, row), pieces in zip(of_sentence, self.written_BWT[sentence].tolist(), strict=True):
                if log_p > -math.inf:
                    cut = Hypothesis(tuple(pieces), self.length, log_p, log_p / penalty, finished=False)
                    entries.append(BeamEntry(cut, row % width))
            observe(number, sorted(entries, key=lambda entry: -entry.hypothesis.log_probability))

    def end_step(self, log_p_BW: Floats) -> list[int]:
        """End the step, drop the sentences that are done, and return the numbers of the others in order.

        ``log_p_BW`` are the log-probabilities of the live hypotheses, descending. If a sentence has fewer than
        ``n_best`` finished hypotheses, its live ones fill the list, up to the beam.
        """
        greatest = log_p_BW[:, 0].tolist()
        stay = [b for b, number in enumerate(self.live) if not self.is_done(number, greatest[b])]
        penalty = length_penalty(self.length, self.decoding)
        for b in set(range(len(self.live))).difference(stay):
            best = self.best[self.live[b]]
            missing = max(0, min(self.n_best, self.decoding.beam) - len(best))
            cut = zip(log_p_BW[b, :missing].tolist(), self.written_BWT[b, :missing].tolist(), strict=True)
            for log_p, pieces in cut:
                if log_p > -math.inf or not best:
                    best.append(Hypothesis(tuple(pieces), self.length, log_p, log_p / penalty, finished=False))
        self.live = [self.live[b] for b in stay]
        self.log_p_BW = log_p_BW[stay]
        self.written_BWT = self.written_BWT[stay]
        self.length += 1
        return stay

    def is_done(self, number: int, live_log_p: float) -> bool:
        """Whether the search of a sentence can stop."""
        return (
            self.length == self.constraints[number].max_length
            or live_log_p == -math.inf
            or self.finished[number] >= self.decoding.beam
            or self.cannot_improve(number, live_log_p)
        )

    def cannot_improve(self, number: int, live_log_p: float) -> bool:
        """Whether no live hypothesis can enter the ``n_best`` any more (§6.1: "terminate early when possible")."""
        # This is an upper bound, because log-probabilities only decrease and alpha >= 0.
        reachable = live_log_p / length_penalty(self.constraints[number].max_length, self.decoding)
        found = self.best[number]
        return len(found) == self.n_best and reachable <= found[-1].score
