"""Tests of the FLOPs of a training against known figures, torch's own counter and a device's peak."""

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from model.config import Model
from model.network.weights import build
from model.training.flops import Work, peak_flops, training_flops

BIG = Model(d_model=1024, d_ff=4096, heads=16)
PAIRS = np.full(1000, 27)


@pytest.mark.parametrize(("model", "gigaflops"), [(Model(), 0.380), (BIG, 1.289)])
def test_the_papers_models_cost_what_is_known(model: Model, gigaflops: float) -> None:
    per_token = training_flops(model, 37_000, PAIRS, PAIRS) / PAIRS.sum()
    assert per_token / 1e9 == pytest.approx(gigaflops, abs=1e-3)


@pytest.mark.parametrize(("source", "target", "decoder_layers"), [(5, 5, 0), (9, 3, 0), (2, 7, 0), (6, 4, 1)])
def test_agrees_with_what_torch_counts(source: int, target: int, decoder_layers: int) -> None:
    config = Model(layers=2, decoder_layers=decoder_layers, d_model=16, d_ff=32, heads=2, d_k=8, d_v=4)
    model = build(config, 50, 50).eval()  # in training mode torch may not count every product
    counter = FlopCounterMode(display=False)
    with sdpa_kernel(SDPBackend.MATH), counter, torch.no_grad():
        model.logits(model(torch.full((3, source), 5), torch.full((3, target), 5)))
    # torch also counts what the causal mask hides.
    masked = 3 * config.layers_of_decoder * target * (target - 1) // 2
    hidden = masked * config.heads * (config.d_k + config.d_v)
    forward = training_flops(config, 50, [source] * 3, [target] * 3) / 3
    assert counter.get_total_flops() == forward + 2 * hidden


def test_utilisation_is_a_share_of_a_known_peak() -> None:
    peak = peak_flops("NVIDIA H100 80GB HBM3")
    assert Work(peak / 2, peak).mfu(ranks=2) == {"mfu": 0.25}
    assert Work(2e14, peak_flops("cpu")).mfu(ranks=1) == {}
