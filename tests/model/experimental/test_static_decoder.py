"""Tests of recorded steps: the hypotheses of the cached decoder, constant tensors, one graph, and no wait."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from small_training import pairs, write_vocabulary
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from model.config import Decoding, Model
from model.config.special_pieces import BOS, EOS
from model.data.bpe import TokenizerPair
from model.decoding import cached_decoder
from model.decoding.beam_search import SearchConstraints, beam_search
from model.decoding.cached_decoder import decoder_starter
from model.decoding.translation import Hypothesis
from model.decoding.translator import SPECIAL_IDS, Translator, pad_sequences
from model.experimental import static_decoder
from model.experimental.cuda_graph import Work
from model.experimental.static_decoder import StaticDecoder, StaticSteps
from model.network.transformer import Transformer

CPU, SIZE = torch.device("cpu"), 40
CONFIG = Model(layers=2, d_model=32, d_ff=64, heads=2, d_k=16, d_v=12, init="normal")


class Tape(TorchDispatchMode):
    """A recording as of a CUDA graph: operations on tensors at fixed addresses, and no Python between them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Sequence[Any], dict[str, Any], list[Any]]] = []

    def __torch_dispatch__(self, function: Any, _: Any, arguments: Sequence[Any] = (), named: Any = None) -> Any:
        made = function(*arguments, **(named or {}))
        self.calls.append((function, arguments, named or {}, tree_leaves(made)))
        return made

    def replay(self) -> None:
        for function, arguments, named, kept in self.calls:
            for old, new in zip(kept, tree_leaves(function(*arguments, **named)), strict=True):
                if old is not new and old.data_ptr() != new.data_ptr():
                    old.copy_(new)

    @staticmethod
    def of(work: Work, _: torch.device) -> Work:
        tape = Tape()
        with tape:
            work()
        return tape.replay


def small_model(seed: int = 1, **changes: Any) -> Transformer:
    torch.manual_seed(seed)
    shape = Model(**(CONFIG.__dict__ | changes))
    return Transformer(shape, SIZE, SIZE).double().eval()


def sources_of(lengths: Sequence[int], seed: int = 0) -> Tensor:
    draw = random.Random(seed)
    return pad_sequences([[*(draw.randrange(4, SIZE) for _ in range(n)), EOS] for n in lengths], CPU)


def search(start: Any, source_BS: Tensor, limits: Sequence[int], beam: int) -> list[Hypothesis]:
    constraints = [SearchConstraints(limit, min_length=min(limit, 2)) for limit in limits]
    with torch.inference_mode():
        found = beam_search(start(source_BS), constraints, Decoding(beam), SPECIAL_IDS, source_BS.device)
    return [best for best, *_ in found]


@pytest.fixture
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_decoder, "MIN_POSITIONS", 4)
    monkeypatch.setattr(static_decoder, "MOST_SENTENCES", 5)


@pytest.mark.usefixtures("small_buckets")
@pytest.mark.parametrize("replayed", [False, True])
@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("changes", [{}, {"norm": "pre", "positions": "learned", "max_positions": 27}])
def test_the_hypotheses_are_those_of_the_cached_decoder(
    monkeypatch: pytest.MonkeyPatch, replayed: bool, beam: int, changes: dict[str, Any]
) -> None:
    if replayed:
        monkeypatch.setattr(static_decoder, "recorded", Tape.of)
    model = small_model(**changes)
    start = decoder_starter(model)
    steps = StaticSteps(start)
    for seed, lengths in enumerate(((3, 9, 1, 6, 2, 8, 3), (5, 2), (17, 4, 1), (3, 9, 1, 6))):
        source_BS, limits = sources_of(lengths, seed), [length + 9 for length in lengths]
        expected, found = (search(each, source_BS, limits, beam) for each in (start, steps))
        assert [h.pieces for h in found] == [h.pieces for h in expected]
        assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-9)
    buckets = {step.bucket for step in steps.steps}
    assert len({bucket.sentences for bucket in buckets}) >= 3
    assert len({bucket.positions for bucket in buckets}) >= 3
    assert {bucket.width for bucket in buckets} == {beam}
    assert len(steps.steps) == len(buckets), "later searches use the steps again"


def test_a_translator_searches_with_them_where_asked(tmp_path: Path) -> None:
    vocabulary = TokenizerPair.load(write_vocabulary(tmp_path / "vocabulary"))
    torch.manual_seed(0)
    model = Transformer(CONFIG, vocabulary.source_size, vocabulary.target_size).double().eval()
    plain, static = (Translator(model, vocabulary, CPU, stepping=each) for each in (None, StaticSteps))
    sources = [source for source, _ in pairs(20)]
    found, expected = (each.search(sources, Decoding(beam=3, max_extra=9)) for each in (static, plain))
    assert [h.pieces for h in found] == [h.pieces for h in expected]
    [starter] = static._search_starters
    assert isinstance(starter, StaticSteps)
    assert starter.steps
    assert plain._search_starters == plain._starters


def test_two_searches_at_once_have_steps_of_their_own_and_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static_decoder, "MOST_STEPS", 2)
    steps = StaticSteps(decoder_starter(small_model()))
    pieces = torch.tensor([BOS])
    with torch.inference_mode():
        one, other = (steps(sources_of((4,), seed)) for seed in (0, 1))
        for decoder in (one, other, one, other):
            decoder.advance(pieces)
        assert isinstance(one, StaticDecoder)
        assert isinstance(other, StaticDecoder)
        assert one.step is not other.step
        assert len(steps.steps) == 2
        first = one.step
        del one, decoder
        for lengths in ((4,), (4, 4), (4, 4, 4), (4,)):
            search(steps, sources_of(lengths), [3] * len(lengths), 1)
        assert other.step in steps.steps
        assert first not in steps.steps
        assert len(steps.steps) == 2


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("bfloat16", [False, True])
def test_logits_are_those_of_the_cached_decoder(device: str, bfloat16: bool) -> None:
    model = small_model(d_v=16).float().to(device)
    source_BS, start = sources_of((3, 9, 1)).to(device), decoder_starter(model, bfloat16)
    decoders = start(source_BS), StaticSteps(start)(source_BS)
    rows = torch.tensor([0, 0, 1, 1, 2, 2], device=device)
    with torch.inference_mode():
        for number in range(40):
            pieces = torch.randint(4, SIZE, (len(rows) if number else 3,), device=device)
            plain, found = (decoder.advance(pieces) for decoder in decoders)
            torch.testing.assert_close(found, plain, atol=5e-2 if bfloat16 else 1e-4, rtol=0)
            for decoder in decoders:
                decoder.reorder(rows)
            rows = torch.tensor([1, 0, 2, 3, 5, 5], device=device)


@pytest.mark.gpu
@pytest.mark.parametrize("beam", [1, 4])
def test_a_replayed_graph_finds_the_hypotheses_of_the_cached_decoder(beam: int) -> None:
    model = small_model().cuda()
    start = decoder_starter(model)
    steps = StaticSteps(start)
    for seed, lengths in enumerate(((3, 9, 1, 6, 2, 8, 3), (40, 4), (3, 9, 1, 6))):
        source_BS, limits = sources_of(lengths, seed).cuda(), [length + 9 for length in lengths]
        expected, found = (search(each, source_BS, limits, beam) for each in (start, steps))
        assert [h.pieces for h in found] == [h.pieces for h in expected]
        assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-9)
    assert len(steps.steps) >= 3
