"""A decoder that computes one position after the other gives what the model gives for whole targets, in few transfers.

``tests/model/network/test_reference.py`` compares its searches with those of a decoder without a cache.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from model.config import Decoding, Model
from model.config.special_pieces import BOS, EOS
from model.decoding.beam_search import IncrementalDecoder, SearchConstraints, beam_search
from model.decoding.cached_decoder import MIN_POSITIONS, CachedDecoder, decoder_starter
from model.decoding.translator import pad_sequences
from model.network.weights import build

CPU = torch.device("cpu")
SIZE = 20
SMALL = Model(layers=2, d_model=16, d_ff=24, heads=2, d_k=6, d_v=10, p_drop=0.3, max_positions=16)
SHAPES = [
    replace(SMALL, norm=norm, positions=positions, tied=tied, qkv_bias=bias)
    for norm, positions, tied, bias in (
        ("post", "sinusoid", True, False),
        ("pre", "learned", False, True),
        ("pre", "sinusoid", True, False),
    )
] + [
    replace(SMALL, d_v=8, d_k=8, attention="torch"),
    replace(SMALL, decoder_layers=1, scale_embeddings=False, output_bias=True),
]
SOURCES = [[5, 6, 7, EOS], [8, EOS], [9, 9, EOS]]


def advance(decoder: IncrementalDecoder, target_RT: Tensor) -> Tensor:
    """The logits after each token of some rows, (R, T, N)."""
    return torch.stack([decoder.advance(pieces_R) for pieces_R in target_RT.T], dim=1)


@pytest.mark.parametrize("config", SHAPES)
@pytest.mark.parametrize("beam", [1, 3])
def test_one_position_after_the_other_is_training_s_forward(config: Model, beam: int) -> None:
    torch.manual_seed(0)
    model, source_BS = build(config, SIZE, SIZE).eval(), pad_sequences(SOURCES, CPU)
    target_BT = torch.randint(4, SIZE, (3, 12))
    with torch.inference_mode():
        whole = model.logits(model(source_BS, target_BT))
        decoder = decoder_starter(model)(source_BS)
        first = advance(decoder, target_BT[:, :1])
        decoder.reorder(torch.arange(3).repeat_interleave(beam))
        others = advance(decoder, target_BT[:, 1:].repeat_interleave(beam, 0))
    torch.testing.assert_close(first, whole[:, :1], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(others, whole[:, 1:].repeat_interleave(beam, 0), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("config", SHAPES)
def test_a_reordered_cache_continues_the_selected_rows(config: Model) -> None:
    torch.manual_seed(0)
    model = build(config, SIZE, SIZE).eval()
    prefix, last = torch.tensor([[BOS, 8], [BOS, 9], [BOS, 10]]), [4, 5, 6, 7]
    with torch.inference_mode():
        decoder = decoder_starter(model)(pad_sequences(SOURCES, CPU))
        advance(decoder, prefix)
        # Source 1 is finished; the others continue with two rows each.
        decoder.keep_sentences(torch.tensor([0, 2]))
        decoder.reorder(torch.tensor([0, 0, 2, 2]))
        decoder.reorder(torch.tensor([1, 0, 3, 2]))
        after = decoder.advance(torch.tensor(last))
        for row, (sentence, piece) in enumerate(zip([0, 0, 2, 2], last, strict=True)):
            target_BT = torch.cat([prefix[sentence], torch.tensor([piece])])[None]
            alone = model.logits(model(torch.tensor([SOURCES[sentence]]), target_BT))
            torch.testing.assert_close(after[row], alone[0, -1], atol=1e-5, rtol=1e-4)


def test_a_buffer_that_is_full_grows_and_keeps_its_positions() -> None:
    torch.manual_seed(0)
    model, length = build(SMALL, SIZE, SIZE).eval(), 2 * MIN_POSITIONS + 3
    target_BT = torch.randint(4, SIZE, (3, length))
    source_BS = pad_sequences(SOURCES, CPU)
    with torch.inference_mode():
        decoder = decoder_starter(model)(source_BS)
        assert isinstance(decoder, CachedDecoder)
        found, sizes = [], set()
        for pieces_R in target_BT.T:
            found.append(decoder.advance(pieces_R))
            decoder.reorder(torch.arange(3))
            sizes.add(len(decoder.past.buffer))
        whole = model.logits(model(source_BS, target_BT))
    assert sizes == {MIN_POSITIONS, 2 * MIN_POSITIONS, 4 * MIN_POSITIONS}
    torch.testing.assert_close(torch.stack(found, dim=1), whole, atol=1e-5, rtol=1e-4)


def test_a_learned_table_has_an_end() -> None:
    model = build(replace(SMALL, positions="learned", max_positions=4), SIZE, SIZE).eval()
    with torch.inference_mode():
        decoder = decoder_starter(model)(pad_sequences([[5, EOS]], CPU))
        for _ in range(4):
            decoder.advance(torch.tensor([BOS]))
        with pytest.raises(ValueError, match=r"position is 5, allowed is up to model.max_positions, 4"):
            decoder.advance(torch.tensor([BOS]))


@pytest.mark.parametrize("beam", [1, 4])
def test_a_step_brings_numbers_to_the_host_once_and_gathers_once(monkeypatch: pytest.MonkeyPatch, beam: int) -> None:
    """Each transfer waits for a GPU. Ties, which are rare in real scores, cost more."""
    torch.manual_seed(0)
    model = build(Model(layers=1, d_model=16, d_ff=24, heads=2, d_k=8, d_v=8), 40, 40).eval()
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
