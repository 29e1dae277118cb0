"""A decoder that computes one position after the other gives what the model gives for whole targets."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from model.config import Model
from model.config.special_pieces import BOS, EOS
from model.decoding.beam_search import IncrementalDecoder
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
