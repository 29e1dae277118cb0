"""Batched beam search (§6.1) over any ``IncrementalDecoder``: a Transformer, or a table of scores in the tests.

At each step, the continuations among a sentence's best K that end in eos are finished; the best K others stay live. A
sentence is done when K hypotheses have finished, at the greatest length, or when no live hypothesis can beat the
``n_best`` finished ones. So beam 1 is greedy search, and the early stop never changes a result. Several can finish in
the last step: up to 2K - 1 in all, so ``n_best`` may exceed K.
"""

# Equal candidates are ordered by hypothesis and token, so the result does not depend on the rest of the batch.
#
# Shape suffixes:
#     B live sentences     W hypotheses per sentence: 1 before the first step, then K, the beam
#     R rows, B * W, the hypotheses of a sentence side by side     N vocabulary
#     C candidates of a row     X candidates of a sentence, W * C     T tokens so far     S source positions
#     E models of an ensemble

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..config import Decoding
from ..config.keying import require
from .translation import Hypothesis

BLOCK = 32
"""Columns per block in ``blockwise_topk``."""
MIN_BLOCKWISE = 1 << 16
"""Below this many values ``torch.topk`` takes less time than finding blocks."""
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class IncrementalDecoder(Protocol):
    """The state of a model during a search: one row per hypothesis, equally many rows per sentence."""

    def advance(self, pieces_R: Tensor) -> Tensor:
        """Append a token to each row (R); return the logits of the next token (R, N)."""
        ...

    def reorder(self, rows_R: Tensor) -> None:
        """Make row i continue row ``rows_R[i]``; there may be more rows than before."""
        ...

    def keep_sentences(self, sentences_B: Tensor) -> None:
        """Drop all other sentences; ``reorder`` follows with the rows that stay, numbered among those kept."""
        ...

    def attention(self) -> Tensor:
        """Attention of the last token over the source positions (R, S): each row sums to 1 over the source, and
        padding has 1. Called only with a coverage penalty."""
        ...


class Ensemble:
    """Several models of one vocabulary as one ``IncrementalDecoder``: the mean of their probabilities and attention."""

    def __init__(self, steps: Sequence[IncrementalDecoder]) -> None:
        """``steps`` are the models' decoders over the same source sentences."""
        self.steps = steps

    def advance(self, pieces_R: Tensor) -> Tensor:
        """Append a token to each row (R); return logits (R, N) whose softmax is the mean over the E models."""
        log_p_ERN = torch.stack([step.advance(pieces_R).log_softmax(dim=1) for step in self.steps])
        # Not divided by E: the softmax cancels a constant factor.
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
    """Ids of the special tokens; the search never writes the ``forbidden`` ones."""

    bos: int
    eos: int
    forbidden: tuple[int, ...]


@dataclass(frozen=True)
class SearchConstraints:
    """Least and greatest length of a sentence's hypotheses, eos counted, and the tokens that they begin with.

    Raises ValueError for impossible lengths and for a prefix that leaves no room for another token.
    """

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
        allowed = f"fewer than {self.max_length} tokens, the greatest length"
        require(len(self.prefix) < self.max_length, "prefix", self.prefix, allowed)


@dataclass(frozen=True)
class BeamEntry:
    """A hypothesis after a step: it has ended (``finished``), or is live and not finished yet."""

    hypothesis: Hypothesis
    parent: int
    """The live hypothesis of the step before that it continues, counted from 0 in the order of the beam."""


StepObserver = Callable[[int, Sequence[BeamEntry]], None]
"""Called after each step with the number of a sentence and its hypotheses, the likeliest first."""


def length_penalty(length: int, alpha: float) -> float:
    """Return ((5 + |Y|) / 6) ** alpha (§6.1; Wu et al. 2016, equation 14)."""
    return float(((5 + length) / 6) ** alpha)


def coverage_penalty(coverage_RS: Tensor, beta: float) -> Tensor:
    """Return beta * sum over source positions of log(min(coverage, 1)), (R) (Wu et al. 2016, equation 15).

    Coverage is the sum of the attention so far, at least 1e-10 so that an unattended position costs a finite amount.
    """
    return beta * coverage_RS.double().clamp(1e-10, 1).log().sum(dim=1)


@torch.inference_mode()
def beam_search(
    step: IncrementalDecoder,
    constraints: Sequence[SearchConstraints],
    decoding: Decoding,
    special_ids: SpecialIds,
    device: torch.device,
    n_best: int = 1,
    observe: StepObserver | None = None,
) -> list[list[Hypothesis]]:
    """Return the ``n_best`` best hypotheses of each sentence, best first, in the order of the sentences (§6.1).

    If fewer finished, the likeliest cut ones follow, up to the beam. Tokens that are forbidden or break a constraint
    keep their share of the softmax. Raises ValueError if ``n_best`` exceeds what the beam can finish or a prefix holds
    eos or a forbidden token, FloatingPointError for scores that are NaN.
    """
    decoding.check_n_best(n_best)
    check_prefixes(constraints, special_ids)
    state = BeamState(constraints, decoding, n_best)
    # A step waits once, for its candidates: choosing among so few is faster on the host. The choice goes back at once.
    log_p_BW: Floats = np.zeros((len(constraints), 1))
    pieces_R = torch.full((len(constraints),), special_ids.bos, device=device)
    prefixes_RT: Ints = np.empty((len(constraints), 0), dtype=np.int64)
    coverage_RS = torch.zeros(len(constraints), 1, device=device)
    while state.live:
        sentences, width = log_p_BW.shape
        log_p_RN = step.advance(pieces_R).log_softmax(dim=1)
        if decoding.beta:
            coverage_RS = coverage_RS + step.attention()
        scores_RC, pieces_RC = candidates(log_p_RN, decoding.beam, special_ids)
        if any(too_short := state.too_short()):
            scores_RC[np.repeat(too_short, width)[:, None] & (pieces_RC == special_ids.eos)] = -math.inf
        for sentence, piece in state.forced().items():
            rows = slice(sentence * width, (sentence + 1) * width)
            scores_RC[rows] = -math.inf
            scores_RC[rows, 0] = log_p_RN[rows, piece].double().cpu().numpy()
            pieces_RC[rows, 0] = piece
        per_row = scores_RC.shape[1]
        scores_BX = (log_p_BW.reshape(-1, 1) + scores_RC).reshape(sentences, -1)
        # Stable: equal candidates stay in the order of hypothesis and token.
        order_BX = np.argsort(-scores_BX, axis=1, kind="stable")
        sentence_B1 = np.arange(sentences)[:, None]
        scores_BX = scores_BX[sentence_B1, order_BX]
        pieces_BX = pieces_RC.reshape(sentences, -1)[sentence_B1, order_BX]
        rows_BX = order_BX // per_row + width * sentence_B1

        ends_BX = pieces_BX == special_ids.eos
        ended_BK = (ends_BX & (scores_BX > -math.inf))[:, : decoding.beam]
        entries: list[list[BeamEntry]] = [[] for _ in state.live]
        ended_rows = rows_BX[:, : decoding.beam][ended_BK]
        coverages = [0.0] * len(ended_rows)
        if decoding.beta and coverages:
            ended_RS = coverage_RS[torch.from_numpy(ended_rows).to(device)]
            coverages = coverage_penalty(ended_RS, decoding.beta).cpu().tolist()
        for (sentence, rank), row, coverage in zip(
            np.argwhere(ended_BK).tolist(), ended_rows.tolist(), coverages, strict=True
        ):
            ended = state.finish(sentence, prefixes_RT[row].tolist(), float(scores_BX[sentence, rank]), coverage)
            entries[sentence].append(BeamEntry(ended, row % width))

        live_BW = np.argsort(ends_BX, axis=1, kind="stable")[:, : decoding.beam]
        log_p_BW = np.where(ends_BX, -math.inf, scores_BX)[sentence_B1, live_BW]
        rows_BW = rows_BX[sentence_B1, live_BW]
        pieces_BW = pieces_BX[sentence_B1, live_BW]
        prefixes_RT = np.concatenate([prefixes_RT[rows_BW.reshape(-1)], pieces_BW.reshape(-1, 1)], axis=1)
        prefixes_BWT = prefixes_RT.reshape(*log_p_BW.shape, -1)
        if observe is not None:
            live = state.live_entries(log_p_BW, prefixes_BWT, rows_BW % width)
            for number, ended_here, live_here in zip(state.live, entries, live, strict=True):
                found = [*ended_here, *live_here]
                observe(number, sorted(found, key=lambda entry: -entry.hypothesis.log_probability))

        stay = state.end_step(log_p_BW, prefixes_BWT)
        if not stay:
            break
        log_p_BW = log_p_BW[stay]
        rows_BW = rows_BW[stay]
        pieces_BW = pieces_BW[stay]
        count = log_p_BW.size
        prefixes_RT = prefixes_BWT[stay].reshape(log_p_BW.size, -1)
        chosen = torch.from_numpy(np.concatenate([stay, rows_BW.reshape(-1), pieces_BW.reshape(-1)])).to(device)
        stay_B, rows_R, pieces_R = torch.split(chosen, [len(stay), count, count])
        if decoding.beta:
            coverage_RS = coverage_RS[rows_R]
        if len(stay) < sentences:
            step.keep_sentences(stay_B)
        if not np.array_equal(rows_BW.reshape(-1), np.arange(sentences * width)):
            step.reorder(rows_R)
    return state.best


def check_prefixes(constraints: Sequence[SearchConstraints], special_ids: SpecialIds) -> None:
    """Raise ValueError for a prefix with a token that no hypothesis can hold."""
    excluded = {special_ids.eos, *special_ids.forbidden}
    for constraint in constraints:
        allowed = f"tokens other than {', '.join(map(str, sorted(excluded)))}, which no output can hold"
        require(excluded.isdisjoint(constraint.prefix), "prefix", constraint.prefix, allowed)


def candidates(log_p_RN: Tensor, beam: int, special_ids: SpecialIds) -> tuple[Floats, Ints]:
    """Select the best next tokens of each row: log-probabilities (R, C), descending, and ids (R, C).

    C is the beam plus eos plus the forbidden tokens, which get minus infinity. Raises FloatingPointError for NaN.
    """
    count = min(beam + 1 + len(special_ids.forbidden), log_p_RN.shape[1])
    scores_RC, pieces_RC = stable_topk(log_p_RN, count)
    if np.isnan(scores_RC).any():
        raise FloatingPointError("the model gives scores that are not finite: its weights have diverged")
    for piece in special_ids.forbidden:
        scores_RC[pieces_RC == piece] = -math.inf
    return scores_RC, pieces_RC


def stable_topk(values_RN: Tensor, count: int) -> tuple[Floats, Ints]:
    """Return the ``count`` greatest values of each row, descending, and their columns; of equal values the first.

    ``torch.topk`` does not define which of equal values it takes, so its result could change with the batch.
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
    """Copy candidates to the host: one transfer, as each waits for the device."""
    both = torch.stack([values_RC.double(), columns_RC.double()]).cpu().numpy()
    return both[0], both[1].astype(np.int64)


def blockwise_topk(values_RN: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Compute ``values_RN.topk(count)``, of many values six times faster on a CPU: it searches the blocks with the
    greatest maxima."""
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


class BeamState:
    """The live sentences and the best hypotheses of each.

    Methods number sentences among the live ones; ``best`` is in the order of ``constraints``.
    """

    def __init__(self, constraints: Sequence[SearchConstraints], decoding: Decoding, n_best: int) -> None:
        self.constraints = constraints
        self.decoding = decoding
        self.n_best = n_best
        self.live = list(range(len(constraints)))
        self.best: list[list[Hypothesis]] = [[] for _ in constraints]
        self.finished = [0] * len(constraints)
        self.length = 1
        """|Y| of the hypotheses that finish in this step."""

    def too_short(self) -> list[bool]:
        """For each live sentence, whether its hypotheses may not finish yet."""
        return [self.length < self.constraints[number].min_length for number in self.live]

    def forced(self) -> dict[int, int]:
        """The token that the prefix of a live sentence demands in this step, for those whose prefix is not over."""
        prefixes = [self.constraints[number].prefix for number in self.live]
        return {b: prefix[self.length - 1] for b, prefix in enumerate(prefixes) if len(prefix) >= self.length}

    def finish(self, sentence: int, pieces: list[int], log_probability: float, coverage: float) -> Hypothesis:
        """Add a hypothesis that has written eos, and return it; ``coverage`` is its coverage penalty."""
        number = self.live[sentence]
        self.finished[number] += 1
        score = log_probability / length_penalty(self.length, self.decoding.alpha) + coverage
        ended = Hypothesis(tuple(pieces), self.length, log_probability, score, finished=True)
        # Stable: of equal scores the first found wins.
        self.best[number] = sorted([*self.best[number], ended], key=lambda each: -each.score)[: self.n_best]
        return ended

    def live_entries(self, log_p_BW: Floats, live_BWT: Ints, parents_BW: Ints) -> list[list[BeamEntry]]:
        """The live hypotheses of each live sentence after this step, as they would be if they were cut here."""
        penalty = length_penalty(self.length, self.decoding.alpha)
        rows = zip(log_p_BW.tolist(), live_BWT.tolist(), parents_BW.tolist(), strict=True)
        return [
            [
                BeamEntry(Hypothesis(tuple(pieces), self.length, log_p, log_p / penalty, finished=False), parent)
                for log_p, pieces, parent in zip(*row, strict=True)
                if log_p > -math.inf
            ]
            for row in rows
        ]

    def end_step(self, live_log_p_BW: Floats, live_BWT: Ints) -> list[int]:
        """End the step, drop the sentences that are done, and return the numbers of the others in order.

        ``live_log_p_BW`` are the log-probabilities of the live hypotheses, descending, ``live_BWT`` their tokens. They
        are cut and fill up the n best of a sentence with too few finished hypotheses, up to the beam.
        """
        greatest = live_log_p_BW[:, 0].tolist()
        stay = [b for b, number in enumerate(self.live) if not self.is_done(number, greatest[b])]
        penalty = length_penalty(self.length, self.decoding.alpha)
        for b in set(range(len(self.live))).difference(stay):
            best = self.best[self.live[b]]
            missing = max(0, min(self.n_best, self.decoding.beam) - len(best))
            for log_p, pieces in zip(live_log_p_BW[b, :missing].tolist(), live_BWT[b, :missing].tolist(), strict=True):
                if log_p > -math.inf or not best:
                    best.append(Hypothesis(tuple(pieces), self.length, log_p, log_p / penalty, finished=False))
        self.live = [self.live[b] for b in stay]
        self.length += 1
        return stay

    def is_done(self, number: int, live_log_p: float) -> bool:
        """Whether the search of a sentence can stop."""
        if (
            self.length == self.constraints[number].max_length
            or live_log_p == -math.inf
            or self.finished[number] >= self.decoding.beam
        ):
            return True
        return self.cannot_improve(number, live_log_p)

    def cannot_improve(self, number: int, live_log_p: float) -> bool:
        """Whether no live hypothesis of a sentence can win any more (§6.1: "terminate early when possible")."""
        # Log-probabilities only fall, the coverage penalty is at most 0 and alpha >= 0: this is the upper bound.
        reachable = live_log_p / length_penalty(self.constraints[number].max_length, self.decoding.alpha)
        found = self.best[number]
        return len(found) == self.n_best and reachable <= found[-1].score
