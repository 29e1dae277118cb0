"""Batched beam search (§6.1): scores of next pieces in, the best hypothesis of each sentence out.

It knows nothing of networks, text or files: what is searched is a ``Step``, so that a table can stand in for a model.

How it searches. Of the continuations of a sentence's live hypotheses, those among the best K that end in eos are
finished, and the best K others live on. A sentence is done when K hypotheses have finished, at its greatest length,
or as soon as no live hypothesis can beat the best finished one. So beam 1 is greedy search, and the early stop never
changes a result. Equal candidates are taken in the order of hypothesis and piece, whatever else is in the batch.

Shape suffixes:
    B sentences still searched     W hypotheses of each: 1 before the first step, then K, the beam
    R rows of the step, B * W, hypotheses of a sentence side by side     N vocabulary
    C candidates of a row     X candidates of a sentence, W * C     T pieces so far
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from model.config import Decoding
from model.fields import require

BLOCK = 32
"""Columns looked at together where the greatest of many are sought."""


class Step(Protocol):
    """A model in the middle of a search: rows of hypotheses over sentences, equally many rows for each sentence."""

    def advance(self, pieces_R: Tensor) -> Tensor:
        """Append a piece to each row; the scores before the softmax of what may follow, (R, N)."""
        ...

    def select(self, rows_R: Tensor) -> None:
        """Let row i go on from what row ``rows_R[i]`` has seen; there may be more rows than before."""
        ...

    def keep(self, sentences_B: Tensor) -> None:
        """Forget all but these sentences; ``select`` follows with their rows, counted as before."""
        ...


@dataclass(frozen=True)
class Symbols:
    """The pieces that mean something to a search; ``forbidden`` ones are never written."""

    bos: int
    eos: int
    forbidden: tuple[int, ...]


@dataclass(frozen=True)
class Hypothesis:
    """An output: its pieces without bos and eos.

    ``log_probability`` is natural and sums over ``length`` pieces, eos counted; ``score`` is it over the length
    penalty. One that is not ``finished`` was cut at its greatest length, for want of any that ended.
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


@torch.inference_mode()
def beam_search(
    step: Step, limits: Sequence[int], decoding: Decoding, symbols: Symbols, device: torch.device
) -> list[Hypothesis]:
    """The best hypothesis of each sentence, in the sentences' order (§6.1).

    ``limits`` are the greatest lengths, eos counted. Forbidden pieces keep their share of the softmax. Raises
    ValueError for a limit under 1, FloatingPointError where the step's scores are no numbers.
    """
    for limit in limits:
        require(limit >= 1, "limit", limit, "a whole number of at least 1")
    ledger = Ledger(limits, decoding)
    log_p_BW = torch.zeros(len(limits), 1, dtype=torch.float64, device=device)
    pieces_R = torch.full((len(limits),), symbols.bos, device=device)
    prefixes_RT = torch.empty(len(limits), 0, dtype=torch.int64, device=device)
    while ledger.live:
        sentences, width = log_p_BW.shape
        scores_RC, pieces_RC = candidates(step.advance(pieces_R), decoding.beam, symbols)
        per_row = scores_RC.shape[1]
        # Stable: equal candidates stay in the order of hypothesis and piece.
        scores_BX = (log_p_BW.view(-1, 1) + scores_RC).view(sentences, -1)
        scores_BX, order_BX = scores_BX.sort(dim=1, descending=True, stable=True)
        pieces_BX = pieces_RC.reshape(sentences, -1).gather(1, order_BX)
        rows_BX = order_BX // per_row + width * torch.arange(sentences, device=device)[:, None]

        ends_BX = pieces_BX == symbols.eos
        ended_BK = (ends_BX & (scores_BX > -torch.inf))[:, : decoding.beam]
        for sentence, rank in ended_BK.nonzero().tolist():
            prefix = prefixes_RT[rows_BX[sentence, rank]].tolist()
            ledger.finish(sentence, prefix, float(scores_BX[sentence, rank]))

        lives_BW = ends_BX.to(torch.uint8).argsort(dim=1, stable=True)[:, : decoding.beam]
        log_p_BW = scores_BX.masked_fill(ends_BX, -torch.inf).gather(1, lives_BW)
        rows_BW, pieces_BW = rows_BX.gather(1, lives_BW), pieces_BX.gather(1, lives_BW)
        prefixes_RT = torch.cat([prefixes_RT[rows_BW.view(-1)], pieces_BW.view(-1, 1)], dim=1)

        stay = ledger.settle(log_p_BW[:, 0].tolist(), prefixes_RT[:: log_p_BW.shape[1]])
        if not stay:
            break
        if len(stay) < sentences:
            stay_B = torch.tensor(stay, device=device)
            step.keep(stay_B)
            log_p_BW, rows_BW, pieces_BW = log_p_BW[stay_B], rows_BW[stay_B], pieces_BW[stay_B]
            prefixes_RT = prefixes_RT.view(sentences, -1, prefixes_RT.shape[1])[stay_B].flatten(0, 1)
        rows_R, pieces_R = rows_BW.reshape(-1), pieces_BW.reshape(-1)
        if not torch.equal(rows_R, torch.arange(sentences * width, device=device)):
            step.select(rows_R)
    return ledger.results()


def candidates(logits_RN: Tensor, beam: int, symbols: Symbols) -> tuple[Tensor, Tensor]:
    """Enough of each row's best next pieces: log-probabilities (R, C), float64 and falling, and the pieces (R, C).

    Enough are the ``beam`` best that may go on, eos if it is among them, and the forbidden, which get minus infinity.
    Raises FloatingPointError where scores are no numbers.
    """
    count = min(beam + 1 + len(symbols.forbidden), logits_RN.shape[1])
    scores_RC, pieces_RC = top(logits_RN.log_softmax(dim=1), count)
    if bool(scores_RC.isnan().any()):
        raise FloatingPointError("the model gives scores that are not finite: its weights have diverged")
    for piece in symbols.forbidden:
        scores_RC = scores_RC.masked_fill(pieces_RC == piece, -torch.inf)
    return scores_RC.double(), pieces_RC


def top(values_RN: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` greatest of each row, falling, and their columns; of equal ones the first columns.

    ``torch.topk`` leaves open which of equal values it takes, so the answer could change with the batch.
    """
    some = min(count + 1, values_RN.shape[1])
    values_RC, columns_RC = any_top(values_RN, some)
    columns_RC, by_column_RC = columns_RC.sort(dim=1)
    values_RC, order_RC = values_RC.gather(1, by_column_RC).sort(dim=1, descending=True, stable=True)
    columns_RC = columns_RC.gather(1, order_RC)
    if some > count:
        tied = (values_RC[:, count - 1] == values_RC[:, count]).nonzero().view(-1)
        if tied.numel():
            values_TN, columns_TN = values_RN[tied].sort(dim=1, descending=True, stable=True)
            values_RC[tied], columns_RC[tied] = values_TN[:, :some], columns_TN[:, :some]
    return values_RC[:, :count], columns_RC[:, :count]


def any_top(values_RN: Tensor, count: int) -> tuple[Tensor, Tensor]:
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


class Ledger:
    """Which sentences are still searched, and the best that each has found: the bookkeeping beside the tensors.

    Sentences are counted among those still live; ``results`` are in the order of ``limits``.
    """

    def __init__(self, limits: Sequence[int], decoding: Decoding) -> None:
        self.limits, self.decoding = limits, decoding
        self.live = list(range(len(limits)))
        self.best: dict[int, Hypothesis] = {}
        self.finished = [0] * len(limits)
        self.length = 1
        """|Y| of the hypotheses that end in this step."""

    def finish(self, sentence: int, pieces: list[int], log_probability: float) -> None:
        """A hypothesis has written eos."""
        number = self.live[sentence]
        self.finished[number] += 1
        self.offer(number, pieces, log_probability, finished=True)

    def offer(self, number: int, pieces: list[int], log_probability: float, finished: bool) -> None:
        score = log_probability / length_penalty(self.length, self.decoding.alpha)
        if number not in self.best or score > self.best[number].score:
            self.best[number] = Hypothesis(tuple(pieces), log_probability, score, finished)

    def settle(self, live_log_p: list[float], best_live_BT: Tensor) -> list[int]:
        """End the step and the sentences that are done; which of them stay, in order.

        ``live_log_p`` is each sentence's greatest live log-probability, ``best_live_BT`` the pieces that have it.
        """
        stay = [b for b, number in enumerate(self.live) if not self.done(number, live_log_p[b])]
        for b in set(range(len(self.live))).difference(stay):
            if self.live[b] not in self.best:
                self.offer(self.live[b], best_live_BT[b].tolist(), live_log_p[b], finished=False)
        self.live = [self.live[b] for b in stay]
        self.length += 1
        return stay

    def done(self, number: int, live_log_p: float) -> bool:
        """Whether nothing better can come for a sentence."""
        limit = self.limits[number]
        if self.length == limit or live_log_p == -math.inf or self.finished[number] >= self.decoding.beam:
            return True
        return self.beaten(number, live_log_p)

    def beaten(self, number: int, live_log_p: float) -> bool:
        """Whether the best live hypothesis of a sentence can no longer win (§6.1: "terminate early when possible")."""
        # Log-probabilities only fall and alpha >= 0, so this is the most that a live hypothesis can still reach.
        reachable = live_log_p / length_penalty(self.limits[number], self.decoding.alpha)
        return number in self.best and reachable <= self.best[number].score

    def results(self) -> list[Hypothesis]:
        """The best hypothesis of every sentence."""
        return [self.best[number] for number in range(len(self.limits))]
