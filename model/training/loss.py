"""The loss: cross-entropy with label smoothing (§5.4), summed over target pieces (docs/annotated/index.md).

    nll  = sum over positions of z - logits[label]      z = log sum exp(logits), so log p = logits - z
    flat = sum over positions of z - mean(logits)
    loss = (1 - smoothing) * nll + smoothing * flat

The logits of a whole batch are the largest tensor in training (25,000 pieces by 37,000 entries are 3.7 GB).
``smoothed_loss`` computes logits and their gradient for one chunk of positions at a time, in the forward pass.

Shape suffixes: M target positions without padding, C positions of a chunk, D d_model, N vocabulary.
"""

from typing import Any

import torch
from torch import Tensor, nn

from ..config.special_pieces import PAD
from ..data.batch import Batch
from ..network.transformer import Transformer
from .coverage import CoverageLoss
from .softmax_gradient import SoftmaxGradient, softmax_gradient

CHUNK_LOGITS = {"cpu": 1 << 23, "cuda": 1 << 30}
"""Number of logits in a chunk: about the cache of a CPU, a few GB of a GPU."""


class Objective(nn.Module):
    """Maps a batch to its summed losses. DDP wraps this module, so that one forward computes the loss."""

    def __init__(
        self, transformer: Transformer, smoothing: float, coverage: CoverageLoss | None = None, compiled: bool = False
    ) -> None:
        """``coverage`` is added to the loss in training; ``compiled`` fuses the passes of the softmax into one."""
        super().__init__()
        self.transformer = transformer
        self.smoothing = smoothing
        self.coverage = coverage
        self.softmax_gradient = torch.compile(softmax_gradient) if compiled else softmax_gradient

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return smoothed loss and negative log-likelihood, each summed over the pieces that are not padding."""
        if self.coverage is None or not self.training:
            return self.losses(batch)
        with self.coverage.record(batch) as terms:
            loss, nll = self.losses(batch)
        return loss + torch.stack(terms).sum(), nll

    def losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Compute ``forward`` without the coverage loss."""
        output_ND = self.transformer.output_ND
        if self.transformer.output_bias_N is not None:
            output_ND = torch.cat([output_ND, self.transformer.output_bias_N[:, None]], dim=1)
        return smoothed_loss(self.hidden_states(batch), output_ND, batch.labels, self.smoothing, self.softmax_gradient)

    def hidden_states(self, batch: Batch) -> Tensor:
        """Return the decoder's output at the positions to predict (M, D).

        For a packed batch these are all positions, with 0 at padding. With a bias of the projection, D is d_model + 1
        and the last feature is 1."""
        hidden: Tensor = self.transformer(batch.source, batch.target, batch.packing)
        if self.transformer.output_bias_N is not None:  # the bias is one more column of the projection
            hidden = torch.cat([hidden, torch.ones_like(hidden[..., :1])], dim=-1)
        if batch.label_indices is None:
            return hidden * (batch.labels != PAD)[:, None]
        return hidden.flatten(0, 1)[batch.label_indices]


def smoothed_loss(
    hidden_MD: Tensor, output_ND: Tensor, labels_M: Tensor, smoothing: float, gradient_of: SoftmaxGradient | None = None
) -> tuple[Tensor, Tensor]:
    """Return the smoothed ``loss`` and ``nll``, which is -log p(label), summed over positions (formulas at the top).

    A label PAD does not count; its hidden state must be zero. ``nll`` has no gradient.
    """
    if not torch.is_grad_enabled():
        output_ND = output_ND.detach()  # without this ``needs_input_grad`` is true under ``no_grad``
    loss, nll = _SmoothedLoss.apply(  # type: ignore[no-untyped-call]
        hidden_MD, output_ND, labels_M, smoothing, gradient_of or softmax_gradient
    )
    return loss, nll


class _SmoothedLoss(torch.autograd.Function):
    """Computes ``smoothed_loss`` and, already in the forward pass, its gradients:

        d loss / d logits = softmax(logits) - (1 - smoothing) * onehot(label) - smoothing / N
        d loss / d hidden = d loss / d logits @ output
        d loss / d output = (d loss / d logits).T @ hidden

    The terms with smoothing / N and mean(logits) do not need the logits: mean(logits) = hidden @ mean(output).
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_MD: Tensor, output_ND: Tensor, labels_M: Tensor, smoothing: float, gradient_of: SoftmaxGradient
    ) -> tuple[Tensor, ...]:
        device = hidden_MD.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden_MD.dtype
        wide = torch.promote_types(dtype, torch.float32)
        size = output_ND.shape[0]
        chunk = max(1, CHUNK_LOGITS[device] // size)
        narrow_ND = output_ND.to(dtype)
        mean_D = output_ND.mean(0, dtype=wide)
        nll = flat = hidden_MD.new_zeros((), dtype=wide)
        grad_hidden_MD = torch.empty_like(hidden_MD)
        grad_output_ND = torch.zeros_like(output_ND)
        chunks = (torch.split(x, chunk) for x in (hidden_MD, labels_M, grad_hidden_MD))
        for hidden_CD, labels_C, grad_hidden_CD in zip(*chunks, strict=True):
            narrow_CD = hidden_CD.to(dtype)
            labels_C1 = labels_C[:, None]
            logits_CN = narrow_CD @ narrow_ND.T
            grad_logits_CN, z_C1, label_logits_C1 = gradient_of(logits_CN, labels_C1, smoothing)
            real_C1 = labels_C1 != PAD
            nll = nll + ((z_C1 - label_logits_C1) * real_C1).sum()
            # Not ``@``: autocast would round the sum, which grows with the batch, to bfloat16.
            flat = flat + (z_C1 * real_C1).sum() - torch.dot(hidden_CD.sum(0, dtype=wide), mean_D)
            if any(ctx.needs_input_grad):
                grad_hidden_CD.copy_((grad_logits_CN @ narrow_ND).to(wide).sub_(smoothing * mean_D))
                grad_output_ND += grad_logits_CN.T @ narrow_CD
        grad_output_ND -= smoothing / size * hidden_MD.sum(0, dtype=wide)
        ctx.save_for_backward(grad_hidden_MD, grad_output_ND)
        ctx.mark_non_differentiable(nll)
        return (1 - smoothing) * nll + smoothing * flat, nll

    @staticmethod
    def backward(ctx: Any, scale: Tensor, _nll: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden_MD, grad_output_ND = ctx.saved_tensors
        return grad_hidden_MD * scale, grad_output_ND * scale, None, None, None
