"""Random numbers that are a function of a seed and a counter: Philox 4x32-10 (Salmon et al. 2011).

No state is kept, so a backward pass, another tile size or another device draws the same numbers again. The Triton
kernel draws them with ``tl.philox``; here is the same in plain torch.
"""

import torch
from torch import Tensor

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
WORD = 0xFFFFFFFF
DRAWS = 1 << 31
"""Number of values of the 31 bits that decide whether a weight is dropped."""


def philox(seed: Tensor, counter: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Four words of 32 bits for each counter: int64, of the counters' common shape, with a last dimension of 4.

    ``seed`` is one number of 64 bits, ``counter`` are the first three words (int64, 0 to 2**32 - 1); the fourth is 0.
    """
    c0, c1, c2 = counter
    c3 = torch.zeros_like(seed)
    k0 = seed & WORD
    k1 = (seed >> 32) & WORD
    for _ in range(ROUNDS):
        # The product of two words fills 64 bits: int64 wraps, and the shifted bits are right once masked.
        a = c0 * MULTIPLIERS[0]
        b = c2 * MULTIPLIERS[1]
        c0 = ((b >> 32) & WORD) ^ c1 ^ k0
        c1 = b & WORD
        c2 = ((a >> 32) & WORD) ^ c3 ^ k1
        c3 = a & WORD
        k0 = (k0 + KEY_STEPS[0]) & WORD
        k1 = (k1 + KEY_STEPS[1]) & WORD
    return torch.stack([c0, c1, c2, c3], dim=-1)


def dropped_draws(p_drop: float) -> int:
    """How many of the ``DRAWS`` values drop a weight."""
    return min(round(p_drop * DRAWS), DRAWS - 1)


def kept(seed: Tensor, queries_T: Tensor, heads: int, keys: int, p_drop: float) -> Tensor:
    """Which attention weights dropout keeps, (…, heads, T, keys), for queries numbered ``queries_T`` (…, T).

    Weight (query, head, key) is decided by word ``key % 4`` of the counter (key // 4, query, head).
    """
    device = queries_T.device
    blocks = torch.arange((keys + 3) // 4, device=device)
    rows = queries_T[..., None, :, None].long()
    numbers = torch.arange(heads, device=device)[:, None, None]
    words = philox(seed, (blocks, rows, numbers)).flatten(-2)[..., :keys]
    return (words >> 1) >= dropped_draws(p_drop)
