"""Tests of the signs of collapse against their plain formulas, without padding."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

import pytest
import torch
from small_training import MODEL
from torch import Tensor

from model.config import Model
from model.network.attention import CrossAttention, PaddedMask, SelfAttention
from model.network.attention_maps import attention_maps
from model.network.transformer import Residual, Transformer
from model.network.weights import build
from model.training.probes import cosine, probe

SOURCES, TARGETS = [[5, 6, 7, 8, 2], [9, 2]], [[1, 4], [1, 7, 8]]


def real(lengths: list[int], longest: int) -> Tensor:
    return torch.arange(longest) < torch.tensor(lengths)[:, None]


def built(config: Model) -> Transformer:
    torch.manual_seed(0)
    return build(config, 24, 24).eval()


def mean_cosine(x_TD: Tensor) -> float:
    pairs = [(i, j) for i in range(len(x_TD)) for j in range(len(x_TD)) if i != j]
    return sum(float(torch.cosine_similarity(x_TD[i], x_TD[j], dim=0)) for i, j in pairs) / len(pairs)


def test_cosine_is_the_mean_over_all_pairs_of_positions() -> None:
    memory, lengths = torch.randn(3, 5, 8), [5, 1, 3]
    expected = (20 * mean_cosine(memory[0]) + 6 * mean_cosine(memory[2, :3])) / 26
    assert float(cosine(memory, real(lengths, 5))) == pytest.approx(expected, abs=1e-6)


def test_coverage_is_the_normalised_entropy_of_the_mean_weights() -> None:
    model = built(replace(MODEL, layers=2, decoder_layers=3))
    source, target = torch.tensor([SOURCES[0]]), torch.tensor([TARGETS[1]])
    found, maps = probe(model, source, target), attention_maps(model, source, target)
    for name, weights_LBHTS in (("encoder", maps.encoder), ("cross", maps.cross)):
        p_LS = weights_LBHTS.mean((1, 2, 3))
        expected = (-(p_LS * p_LS.log()).sum(-1) / math.log(5)).tolist()
        layers = [found[f"attention_coverage_{name}_{number}"] for number in range(1, len(expected) + 1)]
        assert layers == pytest.approx(expected, abs=1e-6)
        assert found[f"attention_coverage_{name}"] == pytest.approx(sum(expected) / len(expected), abs=1e-6)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_all_signs_but_coverage_are_those_of_both_stacks_walked_by_hand(norm: Literal["pre", "post"]) -> None:
    """A layer's cosine is of its output, its norm that of the sum x + f(x), which post-LN then normalises."""
    model = built(replace(MODEL, layers=2, norm=norm))
    source, target = torch.tensor([SOURCES[0]]), torch.tensor([TARGETS[1]])
    expected: dict[str, float] = {}

    def add(name: str, x: Tensor, around: Residual, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        f = sublayer(around.norm(x) if norm == "pre" else x)
        ratios = [float(f[0, t].norm() / x[0, t].norm()) for t in range(x.shape[1])]
        expected[f"residual_ratio_{name}"] = sum(ratios) / len(ratios)
        added: Tensor = x + f if norm == "pre" else around.norm(x + f)
        if "feed_forward" in name:
            stack, *_, number = name.split("_")
            expected[f"{stack}_norm_{number}"] = float((x + f).norm(dim=-1).mean())
            expected[f"{stack}_cosine_{number}"] = mean_cosine(added[0])
        return added

    def look(name: str, attention: SelfAttention, causal: bool, x: Tensor) -> Tensor:
        q, k, _ = attention.query_keys_values(x[0]).split(attention.widths, dim=-1)
        expected[f"attention_entropy_{name}"] = entropy_by_hand(q, k, causal)
        out: Tensor = attention(x, PaddedMask(causal=causal))
        return out

    def look_across(number: int, attention: CrossAttention, x: Tensor) -> Tensor:
        keys_values = attention.project_memory(memory)
        k = attention.keys_values(memory[0])[:, : attention.widths[1]]
        expected[f"attention_entropy_{number}"] = entropy_by_hand(attention.query(x[0]), k, causal=False)
        out: Tensor = attention(x, keys_values, PaddedMask())
        return out

    x = model.embed(source, model.input_ND, model.source_positions, start=0)
    for n, encoder in enumerate(model.encoder, start=1):
        looked = partial(look, f"encoder_{n}", encoder.attention, False)
        x = add(f"encoder_attention_{n}", x, encoder.around_attention, looked)
        x = add(f"encoder_feed_forward_{n}", x, encoder.around_feed_forward, encoder.feed_forward)
    memory = model.encoder_norm(x)
    expected["encoder_cosine"] = mean_cosine(memory[0])
    x = model.embed(target, model.target_embedding, model.target_positions, start=0)
    for n, decoder in enumerate(model.decoder, start=1):
        looked = partial(look, f"decoder_{n}", decoder.attention, True)
        x = add(f"decoder_attention_{n}", x, decoder.around_attention, looked)
        x = add(f"decoder_cross_{n}", x, decoder.around_cross, partial(look_across, n, decoder.cross))
        x = add(f"decoder_feed_forward_{n}", x, decoder.around_feed_forward, decoder.feed_forward)
    expected["decoder_cosine"] = mean_cosine(model(source, target)[0])
    for name in ("attention_entropy", "attention_entropy_encoder", "attention_entropy_decoder"):
        expected[name] = (expected[f"{name}_1"] + expected[f"{name}_2"]) / 2
    found = probe(model, source, target)
    measured = {name: value for name, value in found.items() if not name.startswith("attention_coverage")}
    assert measured == pytest.approx(expected, rel=1e-4, abs=1e-5)


def entropy_by_hand(q_TX: Tensor, k_SX: Tensor, causal: bool) -> float:
    """Mean over heads and queries of -sum p log p, for p the softmax of q k / sqrt(d_k) over the keys that are seen."""
    entropies = []
    width = MODEL.d_k
    for start in range(0, MODEL.heads * width, width):
        for t, q_X in enumerate(q_TX[:, start : start + width].tolist()):
            keys = k_SX[: t + 1 if causal else None, start : start + width].tolist()
            exps = [math.exp(sum(a * b for a, b in zip(q_X, k_X, strict=True)) / math.sqrt(width)) for k_X in keys]
            entropies.append(-sum(e / sum(exps) * math.log(e / sum(exps)) for e in exps))
    return sum(entropies) / len(entropies)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_batch_equals_the_mean_of_its_sentences(norm: Literal["pre", "post"]) -> None:
    model = built(replace(MODEL, norm=norm))
    together = probe(model, torch.tensor([SOURCES[0], [9, 2, 0, 0, 0]]), torch.tensor([[1, 4, 0], TARGETS[1]]))
    alone = [probe(model, torch.tensor([s]), torch.tensor([t])) for s, t in zip(SOURCES, TARGETS, strict=True)]
    assert together.keys() == alone[0].keys()
    counted = {
        "encoder_cosine": (5 * 4, 2 * 1),
        "decoder_cosine": (2 * 1, 3 * 2),
        "encoder_norm": (5, 2),
        "decoder_norm": (2, 3),
        "residual_ratio_encoder": (5, 2),
        "residual_ratio_decoder": (2, 3),
        "attention_entropy_encoder": (5, 2),
        "attention_entropy": (2, 3),
        "attention_coverage": (1, 1),
    }
    for name in together:
        weights = next(weights for kind, weights in counted.items() if name.startswith(kind))
        expected = sum(w * found[name] for w, found in zip(weights, alone, strict=True)) / sum(weights)
        assert together[name] == pytest.approx(expected, abs=1e-5), name
