"""Draws an output piece by piece from a model's probabilities, over the same ``Step`` and ``Wish`` as beam search.

The random numbers of a sentence are a function of the seed and its number, so that it comes out the same whatever else
is in the batch. Shape suffixes are those of ``model.decoding.beam_search``.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..config import Sampling
from .beam_search import Hypothesis, Step, Symbols, Wish


@torch.inference_mode()
def sample(
    step: Step,
    wishes: Sequence[Wish],
    sampling: Sampling,
    symbols: Symbols,
    device: torch.device,
    numbers: Sequence[int],
) -> list[Hypothesis]:
    """One output of each sentence, in their order; ``numbers`` name the sentences to the random numbers.

    ``log_probability`` and ``score`` are the model's own, whatever the temperature. Raises FloatingPointError where the
    step's scores are no numbers.
    """
    chances = [
        np.random.default_rng([sampling.seed, number]).random(wish.most)
        for wish, number in zip(wishes, numbers, strict=True)
    ]
    written: list[list[int]] = [[] for _ in wishes]
    log_p, ended = [0.0] * len(wishes), [False] * len(wishes)
    live = list(range(len(wishes)))
    pieces_R = torch.full((len(wishes),), symbols.bos, device=device)
    for length in range(1, max(wish.most for wish in wishes) + 1):
        log_p_RN = step.advance(pieces_R).log_softmax(dim=1).double()
        if bool(log_p_RN.isnan().any()):
            raise FloatingPointError("the model gives scores that are not finite: its weights have diverged")
        allowed_RN = log_p_RN.clone()
        allowed_RN[:, list(symbols.forbidden)] = -torch.inf
        for row, number in enumerate(live):
            wish = wishes[number]
            if length < wish.least:
                allowed_RN[row, symbols.eos] = -torch.inf
            if length <= len(wish.prefix):
                forced = allowed_RN[row, wish.prefix[length - 1]].clone()
                allowed_RN[row] = -torch.inf
                allowed_RN[row, wish.prefix[length - 1]] = forced
        chance_R = torch.tensor([chances[number][length - 1] for number in live], dtype=torch.float64, device=device)
        pieces_R = draw(allowed_RN, chance_R, sampling)
        drawn = log_p_RN.gather(1, pieces_R[:, None])[:, 0].tolist()
        for number, piece, its_log_p in zip(live, pieces_R.tolist(), drawn, strict=True):
            log_p[number] += its_log_p
            ended[number] = piece == symbols.eos
            if not ended[number]:
                written[number].append(piece)
        stay = [row for row, number in enumerate(live) if not ended[number] and length < wishes[number].most]
        if not stay:
            break
        if len(stay) < len(live):
            stay_R = torch.tensor(stay, device=device)
            step.keep(stay_R)
            step.select(stay_R)
            pieces_R, live = pieces_R[stay_R], [live[row] for row in stay]
    return [Hypothesis(tuple(written[n]), log_p[n], log_p[n], ended[n]) for n in range(len(wishes))]


def draw(log_p_RN: Tensor, chance_R: Tensor, sampling: Sampling) -> Tensor:
    """A piece for each row by its chance, a uniform number in [0, 1): pieces in the order of their probability share
    out that interval. Minus infinity is never drawn. Returns (R)."""
    scores_RN, pieces_RN = (log_p_RN / sampling.temperature).sort(dim=1, descending=True, stable=True)
    if sampling.top_k:
        scores_RN[:, sampling.top_k :] = -torch.inf
    p_RN = scores_RN.softmax(dim=1)
    # A piece stays while those before it have not reached top_p: the first one always does.
    p_RN = p_RN * (p_RN.cumsum(dim=1) - p_RN < sampling.top_p)
    ends_RN = p_RN.cumsum(dim=1)
    drawn_R1 = (ends_RN <= (chance_R[:, None] * ends_RN[:, -1:])).sum(dim=1, keepdim=True)
    return pieces_RN.gather(1, drawn_R1)[:, 0]
