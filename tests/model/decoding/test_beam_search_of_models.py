"""Beam search over a Transformer: against a decoder without a cache, and with few transfers to the host."""

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from model.config import Decoding, Model
from model.config.special_pieces import EOS
from model.decoding.beam_search import SearchConstraints, beam_search
from model.decoding.cached_decoder import decoder_starter
from model.decoding.translator import pad_sequences
from model.network.transformer import Transformer

CPU = torch.device("cpu")


class UncachedStep:
    """A decoder without a cache: it computes the whole prefix at every step, one sentence at a time without padding."""

    def __init__(self, model: Transformer, sources: Sequence[Sequence[int]]) -> None:
        self.model = model
        self.sources = list(sources)
        self.seen_RT = torch.empty(len(sources), 0, dtype=torch.int64)

    def advance(self, pieces_R: Tensor) -> Tensor:
        self.seen_RT = torch.cat([self.seen_RT, pieces_R[:, None]], dim=1)
        per_sentence = len(self.seen_RT) // len(self.sources)
        rows = [
            self.model.logits(self.model(torch.tensor([self.sources[r // per_sentence]]), seen_T[None])[:, -1])
            for r, seen_T in enumerate(self.seen_RT)
        ]
        return torch.cat(rows)

    def reorder(self, rows_R: Tensor) -> None:
        self.seen_RT = self.seen_RT[rows_R]

    def keep_sentences(self, sentences_B: Tensor) -> None:
        self.sources = [self.sources[b] for b in sentences_B.tolist()]


@pytest.mark.parametrize("positions", ["sinusoid", "learned"])
@pytest.mark.parametrize("beam", [1, 4])
def test_the_cache_does_not_change_the_result(positions: str, beam: int) -> None:
    torch.manual_seed(1)
    shape = Model(layers=2, d_model=32, d_ff=64, heads=2, d_k=16, d_v=16, positions=positions, init="normal")
    model = Transformer(shape, 40, 40).eval()
    draw = random.Random(beam)
    sources = [[*(draw.randrange(4, 40) for _ in range(n)), EOS] for n in (3, 9, 1, 6)]
    limits = [len(source) + 5 for source in sources]
    with torch.inference_mode():
        cache = decoder_starter(model)(pad_sequences(sources, CPU))
        steps = (cache, UncachedStep(model, sources))
        constraints = [SearchConstraints(limit) for limit in limits]
        cached, uncached = ([best for [best] in beam_search(step, constraints, Decoding(beam), CPU)] for step in steps)
    assert [h.pieces for h in cached] == [h.pieces for h in uncached]
    assert [h.score for h in cached] == pytest.approx([h.score for h in uncached], abs=1e-5)
    assert len({h.length for h in cached}) > 1


@pytest.mark.parametrize("beam", [1, 4])
def test_a_step_brings_numbers_to_the_host_once_and_gathers_once(monkeypatch: pytest.MonkeyPatch, beam: int) -> None:
    """Each transfer waits for a GPU. Ties, which are rare in real scores, cost more."""
    torch.manual_seed(0)
    model = Transformer(Model(layers=1, d_model=16, d_ff=24, heads=2, d_k=8, d_v=8), 40, 40).eval()
    step = decoder_starter(model)(pad_sequences([[5, 6, 7, EOS], [8, EOS], [9, 10, EOS]], CPU))
    transfers: Counter[str] = Counter()

    def counted(name: str, plain: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            transfers[name] += 1
            return plain(*arguments, **named)

        return call

    for name in ("cpu", "item", "tolist", "nonzero", "__bool__", "__int__", "__float__", "__index__", "__array__"):
        monkeypatch.setattr(Tensor, name, counted(name, getattr(Tensor, name)))
    gathers: Counter[str] = Counter()
    for name in ("reorder", "keep_sentences"):
        plain = getattr(step, name)
        monkeypatch.setattr(step, name, lambda rows, name=name, plain=plain: (gathers.update([name]), plain(rows)))
    monkeypatch.setattr(step, "advance", counted("advance", step.advance))
    limits = [SearchConstraints(limit) for limit in (9, 4, 6)]
    found = beam_search(step, limits, Decoding(beam), CPU)
    assert max(best.length for [best] in found) > 3
    assert transfers == {"advance": transfers["advance"], "cpu": transfers["advance"]}
    # The caches are gathered once a step, and sentences leave them only when they end.
    assert gathers["reorder"] < transfers["advance"]
    assert 1 <= gathers["keep_sentences"] <= 2
