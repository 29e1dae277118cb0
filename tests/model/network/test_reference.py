"""Tests of this project's layers against torch's: the same outputs, gradients, hypotheses and trainings."""

import random
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_training import MODEL, in_float64, rows, run, write_job
from small_training import SIZE as JOB_SIZE

from model.config import Decoding, Model
from model.config.special_pieces import BOS, EOS, PAD
from model.decoding.beam_search import SearchConstraints, beam_search
from model.decoding.cached_decoder import decoder_starter
from model.decoding.translator import pad_sequences
from model.network.transformer import Transformer
from model.network.weights import build, load_model, load_weights

CPU = torch.device("cpu")
SIZE = 20
SMALL = Model(layers=2, d_model=16, d_ff=24, heads=2, d_k=8, d_v=8, p_drop=0.3, max_positions=16)
SHAPES = [
    replace(SMALL, norm=norm, positions=positions, tied=tied)
    for norm, positions, tied in product(("post", "pre"), ("sinusoid", "learned"), (True, False))
] + [
    replace(SMALL, norm="pre", qkv_bias=True),
    replace(SMALL, decoder_layers=3, scale_embeddings=False, tied=False, output_bias=True),
]
every_shape = pytest.mark.parametrize(
    "config", SHAPES, ids=lambda c: f"{c.norm}-{c.positions}-{c.tied}-{c.qkv_bias}-{c.decoder_layers}"
)
row = st.lists(st.integers(3, SIZE - 1), max_size=6)
pairs = st.lists(st.tuples(row, row), min_size=1, max_size=3)


def both(config: Model, size: int = SIZE) -> tuple[Transformer, Transformer]:
    """The same weights in this project's layers and in torch's; biases and norms are random too."""
    torch.manual_seed(0)
    own = build(config, size, size).eval()
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    reference = build(replace(config, attention="torch"), size, size).eval()
    reference.load_state_dict(own.state_dict())
    return own, reference


@every_shape
@settings(max_examples=10)
@given(some=pairs)
def test_outputs_and_gradients_are_the_same(config: Model, some: list[tuple[list[int], list[int]]]) -> None:
    own, reference = both(config)
    source_BS = pad_sequences([[*source, EOS] for source, _ in some], CPU)
    target_BT = pad_sequences([[BOS, *target] for _, target in some], CPU)
    counts = target_BT != PAD
    logits = [model.logits(model(source_BS, target_BT))[counts] for model in (own, reference)]
    torch.testing.assert_close(logits[1], logits[0], atol=1e-5, rtol=1e-5)
    goal_MN = torch.randn(logits[0].shape, generator=torch.Generator().manual_seed(1)) / logits[0].numel()
    for each in logits:
        (each * goal_MN).sum().backward()
    for (name, parameter), (other, expected) in zip(reference.named_parameters(), own.named_parameters(), strict=True):
        assert name == other
        torch.testing.assert_close(parameter.grad, expected.grad, atol=1e-5, rtol=1e-4)


@every_shape
def test_parameters_and_their_initial_values_are_the_same(config: Model) -> None:
    models = []
    for attention in ("own", "torch"):
        torch.manual_seed(5)
        models.append(build(replace(config, attention=attention), SIZE, SIZE))  # type: ignore[arg-type]
    own, reference = (list(model.named_parameters()) for model in models)
    assert [name for name, _ in own] == [name for name, _ in reference]
    assert all(torch.equal(a, b) and b.requires_grad for (_, a), (_, b) in zip(own, reference, strict=True))
    assert models[0].state_dict().keys() == models[1].state_dict().keys()


@pytest.mark.parametrize("config", [SMALL, replace(SMALL, norm="pre", positions="learned")])
@pytest.mark.parametrize("beam", [1, 4])
def test_beam_search_finds_the_same_hypotheses(config: Model, beam: int) -> None:
    """The reference has no cache of keys and values."""
    own, reference = both(replace(config, max_positions=64), 40)
    draw = random.Random(beam)
    sources = [[*(draw.randrange(4, 40) for _ in range(n)), EOS] for n in (3, 9, 1, 6)]
    constraints = [SearchConstraints(len(source) + 5) for source in sources]
    steps = [decoder_starter(model)(pad_sequences(sources, CPU)) for model in (reference, own)]
    found, expected = ([best for [best] in beam_search(step, constraints, Decoding(beam), CPU)] for step in steps)
    assert [h.pieces for h in found] == [h.pieces for h in expected]
    assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-4)
    assert len({h.length for h in expected}) > 1


def test_a_training_is_the_same_and_either_loads_its_weights(tmp_path: Path) -> None:
    model = replace(MODEL, p_drop=0.0, layers=2)
    own = write_job(tmp_path, name="own", model=model)
    reference = write_job(tmp_path, name="torch", model=replace(model, attention="torch"))
    facts = [run(job, in_float64)["facts"] for job in (own, reference)]
    curves = [[line["loss"] for line in rows(job) if "loss" in line] for job in (own, reference)]
    assert len(curves[0]) == 12
    assert curves[1] == pytest.approx(curves[0], rel=1e-9)
    assert facts[1]["parameters"] == facts[0]["parameters"]
    assert facts[1]["dev_perplexity"] == pytest.approx(facts[0]["dev_perplexity"], rel=1e-9)
    last = reference.parent / "checkpoints/00000012"
    (last / "model.json").write_bytes((reference.parent / "model.json").read_bytes())
    assert load_model(last).config.attention == "torch"
    load_weights(build(model, JOB_SIZE, JOB_SIZE), last)
