"""Batched beam search (§6.1): scores of next pieces in, the best hypotheses of each sentence out.

It knows nothing of networks, text or files: what is searched is a ``IncrementalDecoder``, so that a table can stand in
for a model.

How it searches. Of the continuations of a sentence's live hypotheses, those among the best K that end in eos are
finished, and the best K others live on. A sentence is done when K hypotheses have finished, at its greatest length,
or as soon as no live hypothesis can beat the finished ones that are asked for. So beam 1 is greedy search, and the
early stop never changes a result. Equal candidates are taken in the order of hypothesis and piece, whatever else is in
the batch.

Shape suffixes:
    B sentences still searched     W hypotheses of each: 1 before the first step, then K, the beam
    R rows of the step, B * W, hypotheses of a sentence side by side     N vocabulary
    C candidates of a row     X candidates of a sentence, W * C     T pieces so far     S source positions
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..config import Decoding
from ..config.keying import require

BLOCK = 32
"""Columns looked at together where the greatest of many are sought."""


class IncrementalDecoder(Protocol):
    """A model in the middle of a search: rows of hypotheses over sentences, equally many rows for each sentence."""

    def advance(self, pieces_R: Tensor) -> Tensor:
        """Append a piece to each row; the scores before the softmax of what may follow, (R, N)."""
        ...

    def reorder(self, rows_R: Tensor) -> None:
        """Let row i go on from what row ``rows_R[i]`` has seen; there may be more rows than before."""
        ...

    def keep_sentences(self, sentences_B: Tensor) -> None:
        """Forget all but these sentences; ``reorder`` follows with their rows, counted as before."""
        ...

    def attention(self) -> Tensor:
        """How much the piece that was appended last looks at each source position (R, S), each row summing to 1; 1
        where a position is padding. Asked for only where coverage counts."""
        ...


class Ensemble:
    """Several models of one vocabulary as one Step: the mean of their probabilities, and of their attention."""

    def __init__(self, steps: Sequence[IncrementalDecoder]) -> None:
        self.steps = steps

    def advance(self, pieces_R: Tensor) -> Tensor:
        """The logarithm of the mean probability: its softmax is that mean."""
        log_p_ERN = torch.stack([step.advance(pieces_R).log_softmax(dim=1) for step in self.steps])
        return log_p_ERN.logsumexp(dim=0)

    def reorder(self, rows_R: Tensor) -> None:
        for step in self.steps:
            step.reorder(rows_R)

    def keep_sentences(self, sentences_B: Tensor) -> None:
        for step in self.steps:
            step.keep_sentences(sentences_B)

    def attention(self) -> Tensor:
        return torch.stack([step.attention() for step in self.steps]).mean(dim=0)


@dataclass(frozen=True)
class SpecialIds:
    """The pieces that mean something to a search; ``forbidden`` ones are never written."""

    bos: int
    eos: int
    forbidden: tuple[int, ...]


@dataclass(frozen=True)
class SearchConstraints:
    """What is asked of one sentence's hypotheses: their lengths, eos counted, and the pieces that they begin with."""

    max_length: int
    min_length: int = 1
    prefix: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        require(self.max_length >= 1, "max_length", self.max_length, "a whole number of at least 1")
        require(
            1 <= self.min_length <= self.max_length,
            "min_length",
            self.min_length,
            f"1 to {self.max_length}, the greatest length",
        )
        length = len(self.prefix)
        require(
            length < self.max_length, "prefix", self.prefix, f"fewer than {self.max_length} pieces, the greatest length"
        )


@dataclass(frozen=True)
class Hypothesis:
    """An output: its pieces without bos and eos.

    ``log_probability`` is natural and sums over ``length`` pieces, eos counted; ``score`` is it over the length
    penalty, plus the coverage penalty. One that is not ``finished`` was cut at its greatest length, for want of any
    that ended.
    """

    pieces: tuple[int, ...]
    log_probability: float
    score: float
    finished: bool

    @property
    def length(self) -> int:
        """|Y|: pieces written, the eos of a finished one counted."""
        return len(self.pieces) + self.finished


def length_penalty(length: int, alpha: float) -> float:
    """((5 + |Y|) / 6) ** alpha (§6.1, and Wu et al. 2016, equation 14)."""
    return float(((5 + length) / 6) ** alpha)


def coverage_penalty(coverage_RS: Tensor, beta: float) -> Tensor:
    """beta * sum over source positions of log(min(coverage, 1)), coverage the attention so far (Wu et al. 2016,
    equation 15): (R). A position that nothing looked at costs much, yet not infinitely much."""
    return beta * coverage_RS.double().clamp(1e-10, 1).log().sum(dim=1)


@torch.inference_mode()
def beam_search(
    step: IncrementalDecoder,
    constraints: Sequence[SearchConstraints],
    decoding: Decoding,
    special_ids: SpecialIds,
    device: torch.device,
    n_best: int = 1,
) -> list[list[Hypothesis]]:
    """The ``n_best`` best hypotheses of each sentence, best first, in the sentences' order (§6.1).

    Where fewer ended before the greatest length, the likeliest that were cut follow them. Forbidden pieces, and those
    that a constraint rules out, keep their share of the softmax. Raises ValueError for more hypotheses than the beam is
    wide and for a prefix with a piece that no hypothesis can hold, FloatingPointError where scores are no numbers.
    """
    require(1 <= n_best <= decoding.beam, "n_best", n_best, f"1 to decoding.beam, which is {decoding.beam}")
    for constraint in constraints:
        for piece in constraint.prefix:
            require(
                piece not in (special_ids.eos, *special_ids.forbidden), "prefix", constraint.prefix, "pieces of words"
            )
    state = BeamState(constraints, decoding, n_best)
    log_p_BW = torch.zeros(len(constraints), 1, dtype=torch.float64, device=device)
    pieces_R = torch.full((len(constraints),), special_ids.bos, device=device)
    prefixes_RT = torch.empty(len(constraints), 0, dtype=torch.int64, device=device)
    coverage_RS = torch.zeros(len(constraints), 1, device=device)
    while state.live:
        sentences, width = log_p_BW.shape
        log_p_RN = step.advance(pieces_R).log_softmax(dim=1)
        if decoding.beta:
            coverage_RS = coverage_RS + step.attention()
        too_short, forced = state.too_short(), state.forced()
        if any(too_short):
            log_p_RN[torch.tensor(too_short, device=device).repeat_interleave(width), special_ids.eos] = -torch.inf
        scores_RC, pieces_RC = candidates(log_p_RN, decoding.beam, special_ids)
        for sentence, piece in forced.items():
            rows = slice(sentence * width, (sentence + 1) * width)
            scores_RC[rows] = -torch.inf
            scores_RC[rows, 0], pieces_RC[rows, 0] = log_p_RN[rows, piece].double(), piece
        per_row = scores_RC.shape[1]
        # Stable: equal candidates stay in the order of hypothesis and piece.
        scores_BX = (log_p_BW.view(-1, 1) + scores_RC).view(sentences, -1)
        scores_BX, order_BX = scores_BX.sort(dim=1, descending=True, stable=True)
        pieces_BX = pieces_RC.reshape(sentences, -1).gather(1, order_BX)
        rows_BX = order_BX // per_row + width * torch.arange(sentences, device=device)[:, None]

        ends_BX = pieces_BX == special_ids.eos
        ended_BK = (ends_BX & (scores_BX > -torch.inf))[:, : decoding.beam]
        for sentence, rank in ended_BK.nonzero().tolist():
            row = rows_BX[sentence, rank]
            covered = float(coverage_penalty(coverage_RS[row][None], decoding.beta)) if decoding.beta else 0.0
            state.finish(sentence, prefixes_RT[row].tolist(), float(scores_BX[sentence, rank]), covered)

        lives_BW = ends_BX.to(torch.uint8).argsort(dim=1, stable=True)[:, : decoding.beam]
        log_p_BW = scores_BX.masked_fill(ends_BX, -torch.inf).gather(1, lives_BW)
        rows_BW, pieces_BW = rows_BX.gather(1, lives_BW), pieces_BX.gather(1, lives_BW)
        prefixes_RT = torch.cat([prefixes_RT[rows_BW.view(-1)], pieces_BW.view(-1, 1)], dim=1)

        stay = state.end_step(log_p_BW, prefixes_RT.view(*log_p_BW.shape, -1))
        if not stay:
            break
        if decoding.beta:
            coverage_RS = coverage_RS[rows_BW[torch.tensor(stay, device=device)].reshape(-1)]
        if len(stay) < sentences:
            stay_B = torch.tensor(stay, device=device)
            step.keep_sentences(stay_B)
            log_p_BW, rows_BW, pieces_BW = log_p_BW[stay_B], rows_BW[stay_B], pieces_BW[stay_B]
            prefixes_RT = prefixes_RT.view(sentences, -1, prefixes_RT.shape[1])[stay_B].flatten(0, 1)
        rows_R, pieces_R = rows_BW.reshape(-1), pieces_BW.reshape(-1)
        if not torch.equal(rows_R, torch.arange(sentences * width, device=device)):
            step.reorder(rows_R)
    return state.results()


def candidates(log_p_RN: Tensor, beam: int, special_ids: SpecialIds) -> tuple[Tensor, Tensor]:
    """Enough of each row's best next pieces: log-probabilities (R, C), float64 and falling, and the pieces (R, C).

    Enough are the ``beam`` best that may go on, eos if it is among them, and the forbidden, which get minus infinity.
    Raises FloatingPointError where scores are no numbers.
    """
    count = min(beam + 1 + len(special_ids.forbidden), log_p_RN.shape[1])
    scores_RC, pieces_RC = stable_topk(log_p_RN, count)
    if bool(scores_RC.isnan().any()):
        raise FloatingPointError("the model gives scores that are not finite: its weights have diverged")
    for piece in special_ids.forbidden:
        scores_RC = scores_RC.masked_fill(pieces_RC == piece, -torch.inf)
    return scores_RC.double(), pieces_RC


def stable_topk(values_RN: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` greatest of each row, falling, and their columns; of equal ones the first columns.

    ``torch.topk`` leaves open which of equal values it takes, so the answer could change with the batch.
    """
    some = min(count + 1, values_RN.shape[1])
    values_RC, columns_RC = blockwise_topk(values_RN, some)
    columns_RC, by_column_RC = columns_RC.sort(dim=1)
    values_RC, order_RC = values_RC.gather(1, by_column_RC).sort(dim=1, descending=True, stable=True)
    columns_RC = columns_RC.gather(1, order_RC)
    if some > count:
        tied = (values_RC[:, count - 1] == values_RC[:, count]).nonzero().view(-1)
        if tied.numel():
            values_TN, columns_TN = values_RN[tied].sort(dim=1, descending=True, stable=True)
            values_RC[tied], columns_RC[tied] = values_TN[:, :some], columns_TN[:, :some]
    return values_RC[:, :count], columns_RC[:, :count]


def blockwise_topk(values_RN: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """``values_RN.topk(count)``, six times faster on a CPU: the greatest lie in the blocks with the greatest maxima."""
    blocks = values_RN.shape[1] // BLOCK
    if blocks <= count:
        return values_RN.topk(count, dim=1)
    inside, device = blocks * BLOCK, values_RN.device
    best_RC = values_RN[:, :inside].reshape(-1, blocks, BLOCK).amax(dim=2).topk(count, dim=1).indices
    columns_RX = (best_RC[:, :, None] * BLOCK + torch.arange(BLOCK, device=device)).flatten(1)
    rest_RX = torch.arange(inside, values_RN.shape[1], device=device).expand(len(values_RN), -1)
    columns_RX = torch.cat([columns_RX, rest_RX], dim=1)
    values_RC, order_RC = values_RN.gather(1, columns_RX).topk(count, dim=1)
    return values_RC, columns_RX.gather(1, order_RC)


class BeamState:
    """Which sentences are still searched, and the best that each has found: the bookkeeping beside the tensors.

    Sentences are counted among those still live; ``results`` are in the order of ``constraints``.
    """

    def __init__(self, constraints: Sequence[SearchConstraints], decoding: Decoding, n_best: int) -> None:
        self.constraints, self.decoding, self.n_best = constraints, decoding, n_best
        self.live = list(range(len(constraints)))
        self.best: list[list[Hypothesis]] = [[] for _ in constraints]
        self.finished = [0] * len(constraints)
        self.length = 1
        """|Y| of the hypotheses that end in this step."""

    def too_short(self) -> list[bool]:
        """Of which sentences no hypothesis may end in this step."""
        return [self.length < self.constraints[number].min_length for number in self.live]

    def forced(self) -> dict[int, int]:
        """The piece that a sentence's hypotheses must write in this step, where its prefix says so."""
        prefixes = [self.constraints[number].prefix for number in self.live]
        return {b: prefix[self.length - 1] for b, prefix in enumerate(prefixes) if len(prefix) >= self.length}

    def finish(self, sentence: int, pieces: list[int], log_probability: float, covered: float) -> None:
        """A hypothesis has written eos; ``covered`` is its coverage penalty."""
        number = self.live[sentence]
        self.finished[number] += 1
        score = log_probability / length_penalty(self.length, self.decoding.alpha) + covered
        found = [*self.best[number], Hypothesis(tuple(pieces), log_probability, score, finished=True)]
        # Stable: of equal ones the first found is the best.
        self.best[number] = sorted(found, key=lambda hypothesis: -hypothesis.score)[: self.n_best]

    def end_step(self, live_log_p_BW: Tensor, live_BWT: Tensor) -> list[int]:
        """End the step and the sentences that are done; which of them stay, in order.

        ``live_log_p_BW`` are the live hypotheses' log-probabilities, falling, ``live_BWT`` their pieces: cut here, they
        fill up what the finished ones leave open.
        """
        greatest = live_log_p_BW[:, 0].tolist()
        stay = [b for b, number in enumerate(self.live) if not self.is_done(number, greatest[b])]
        penalty = length_penalty(self.length, self.decoding.alpha)
        for b in set(range(len(self.live))).difference(stay):
            best = self.best[self.live[b]]
            missing = self.n_best - len(best)
            for log_p, pieces in zip(live_log_p_BW[b, :missing].tolist(), live_BWT[b, :missing].tolist(), strict=True):
                if log_p > -math.inf or not best:
                    best.append(Hypothesis(tuple(pieces), log_p, log_p / penalty, finished=False))
        self.live = [self.live[b] for b in stay]
        self.length += 1
        return stay

    def is_done(self, number: int, live_log_p: float) -> bool:
        """Whether nothing better can come for a sentence."""
        most = self.constraints[number].max_length
        if self.length == most or live_log_p == -math.inf or self.finished[number] >= self.decoding.beam:
            return True
        return self.cannot_improve(number, live_log_p)

    def cannot_improve(self, number: int, live_log_p: float) -> bool:
        """Whether the best live hypothesis of a sentence can no longer win (§6.1: "terminate early when possible")."""
        # Log-probabilities only fall, coverage costs at least nothing and alpha >= 0: no live one can reach more.
        reachable = live_log_p / length_penalty(self.constraints[number].max_length, self.decoding.alpha)
        found = self.best[number]
        return len(found) == self.n_best and reachable <= found[-1].score

    def results(self) -> list[list[Hypothesis]]:
        """The best hypotheses of every sentence."""
        return self.best
