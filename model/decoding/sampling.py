"""Sampling: draws an output token by token, over the same ``IncrementalDecoder`` as beam search.

The random numbers of a sentence depend on the seed and its number only, so its output does not depend on the batch.
Shape suffixes are those of ``model.decoding.beam_search``.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..config import Sampling
from ..config.special_pieces import BOS, EOS
from .beam_search import FORBIDDEN, IncrementalDecoder, SearchConstraints
from .translation import Hypothesis


@torch.inference_mode()
def sample(
    step: IncrementalDecoder,
    constraints: Sequence[SearchConstraints],
    sampling: Sampling,
    device: torch.device,
    numbers: Sequence[int],
) -> list[Hypothesis]:
    """Draw one output per sentence; ``numbers`` select the random numbers of each sentence.

    ``log_probability`` and ``score`` are the model's at temperature 1. Raises FloatingPointError for scores
    that are NaN.
    """
    uniforms = [
        np.random.default_rng([sampling.seed, number]).random(constraint.max_length)
        for constraint, number in zip(constraints, numbers, strict=True)
    ]
    written: list[list[int]] = [[] for _ in constraints]
    log_p = [0.0] * len(constraints)
    ended = [False] * len(constraints)
    live = list(range(len(constraints)))
    pieces_R = torch.full((len(constraints),), BOS, device=device)
    for length in range(1, max(constraint.max_length for constraint in constraints) + 1):
        log_p_RN = step.advance(pieces_R).log_softmax(dim=1).double()
        if bool(log_p_RN.isnan().any()):
            raise FloatingPointError("the model gives scores that are not finite: its weights have diverged")
        allowed_RN = log_p_RN.clone()
        allowed_RN[:, list(FORBIDDEN)] = -torch.inf
        for row, number in enumerate(live):
            if length < constraints[number].min_length:
                allowed_RN[row, EOS] = -torch.inf
        uniform_R = torch.tensor([uniforms[number][length - 1] for number in live], dtype=torch.float64, device=device)
        pieces_R = draw(allowed_RN, uniform_R, sampling)
        drawn = log_p_RN.gather(1, pieces_R[:, None])[:, 0].tolist()
        for number, piece, piece_log_p in zip(live, pieces_R.tolist(), drawn, strict=True):
            log_p[number] += piece_log_p
            ended[number] = piece == EOS
            if not ended[number]:
                written[number].append(piece)
        stay = [row for row, number in enumerate(live) if not ended[number] and length < constraints[number].max_length]
        if not stay:
            break
        if len(stay) < len(live):
            stay_R = torch.tensor(stay, device=device)
            step.keep_sentences(stay_R)
            step.reorder(stay_R)
            pieces_R = pieces_R[stay_R]
            live = [live[row] for row in stay]
    return [
        Hypothesis(tuple(pieces), len(pieces) + end, total, total, end)
        for pieces, total, end in zip(written, log_p, ended, strict=True)
    ]


def draw(log_p_RN: Tensor, uniform_R: Tensor, sampling: Sampling) -> Tensor:
    """Draw a token for each row (R) with uniform numbers in [0, 1), by inverse transform sampling.

    Tokens divide the interval in the order of their probability. Minus infinity is never drawn.
    """
    scores_RN, pieces_RN = (log_p_RN / sampling.temperature).sort(dim=1, descending=True, stable=True)
    if sampling.top_k:
        scores_RN[:, sampling.top_k :] = -torch.inf
    p_RN = scores_RN.softmax(dim=1)
    # A token stays while those before it sum to less than top_p, so the first always stays.
    p_RN = p_RN * (p_RN.cumsum(dim=1) - p_RN < sampling.top_p)
    ends_RN = p_RN.cumsum(dim=1)
    drawn_R1 = (ends_RN <= (uniform_R[:, None] * ends_RN[:, -1:])).sum(dim=1, keepdim=True)
    return pieces_RN.gather(1, drawn_R1)[:, 0]
