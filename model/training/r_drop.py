"""R-Drop (Liang et al., 2021): two passes of a batch with different dropout have to predict alike.

With p and q the distributions of the two passes at a position, the loss of the position is the mean of the two
smoothed losses plus ``training.r_drop`` / 4 times KL(p || q) + KL(q || p). That is half of what the publication
writes, so that it is as large as the plain loss.

Shape suffixes: P positions, each with two rows, one of each pass; N vocabulary.
"""

import torch
from torch import Tensor


def interleave(first: Tensor, second: Tensor) -> Tensor:
    """Rows of two passes (P, ...) in turn: first[0], second[0], first[1] ... (2P, ...)."""
    return torch.stack((first, second), 1).flatten(0, 1)


def rows_for_divergence(chunk: int) -> int:
    """An even number of rows, fewer than the ``chunk`` that the loss alone takes: there are six matrices of them."""
    return 2 * max(1, chunk // 8)


def symmetric_divergence(logits_2PN: Tensor, z_2P1: Tensor) -> tuple[Tensor, Tensor]:
    """KL(p || q) + KL(q || p) summed over positions, and its gradient (2P, N), from interleaved logits.

    ``z_2P1`` holds the log-sum-exp of each row.
    """
    log_P2N = (logits_2PN - z_2P1).view(-1, 2, logits_2PN.shape[1])
    ratio_PN = log_P2N[:, 0] - log_P2N[:, 1]
    p_PN, q_PN = log_P2N.exp_().unbind(1)
    by_p_P1 = torch.linalg.vecdot(p_PN, ratio_PN)[:, None]
    by_q_P1 = torch.linalg.vecdot(q_PN, ratio_PN)[:, None]
    gradient_P2N = torch.empty_like(log_P2N)
    torch.addcmul(-q_PN, p_PN, ratio_PN + (1 - by_p_P1), out=gradient_P2N[:, 0])
    torch.addcmul(-p_PN, q_PN, (1 + by_q_P1) - ratio_PN, out=gradient_P2N[:, 1])
    return (by_p_P1 - by_q_P1).sum(), gradient_P2N.flatten(0, 1)
