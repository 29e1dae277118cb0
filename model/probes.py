"""What a model does with a few sentences, as numbers to watch: signs of collapse that no loss shows.

In come pieces, out go numbers by name. A post-LN encoder can make all positions of a sentence alike (cosine near 1),
and a cross-attention that looks everywhere (entropy near ln S) says nothing about the source. Shape suffixes are those
of ``model.transformer``.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from model.bpe import PAD
from model.transformer import Transformer


@torch.no_grad()
def probe(model: Transformer, source_BS: Tensor, target_BT: Tensor) -> dict[str, float]:
    """``encoder_cosine`` and ``attention_entropy`` of sources … eos and decoder inputs bos …, padded at the end."""
    memory_BSD, _ = model.encode(source_BS)
    entropy = attention_entropy(model.cross_attention(source_BS, target_BT), target_BT != PAD)
    return encoder_cosine(memory_BSD, source_BS != PAD) | entropy


def encoder_cosine(memory_BSD: Tensor, real_BS: Tensor) -> dict[str, float]:
    """Mean cosine between the encoder's outputs at two different positions of one sentence, over all such pairs.

    Nothing where every sentence has one position.
    """
    unit_BSD = F.normalize(memory_BSD.float(), dim=-1) * real_BS[:, :, None]
    positions_B = real_BS.sum(1)
    # The square of a sum holds every ordered pair once, and each vector's cosine of 1 with itself.
    cosines = unit_BSD.sum(1).square().sum() - positions_B.sum()
    pairs = int((positions_B * (positions_B - 1)).sum())
    return {"encoder_cosine": float(cosines) / pairs} if pairs else {}


def attention_entropy(weights_LBHTS: Tensor, real_BT: Tensor) -> dict[str, float]:
    """Mean entropy in nats of the cross-attention of one query (head and target position), over all layers and, with
    the number of the layer from 1, of each."""
    entropy_LBHT = torch.special.entr(weights_LBHTS.float()).sum(-1)
    entropy_LHM = entropy_LBHT.transpose(1, 2)[:, :, real_BT]
    layers = entropy_LHM.mean((1, 2)).tolist()
    each = {f"attention_entropy_{number}": entropy for number, entropy in enumerate(layers, start=1)}
    return {"attention_entropy": sum(layers) / len(layers)} | each
