"""The special tokens around a source are the same in training, decoding and what is shown, for every value."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from small_training import MODEL, SIZE, write_shards, write_vocabulary

from model.config import Decoding, Model, SourceEnds
from model.config.special_pieces import BOS, EOS, PAD
from model.data.batches import BatchSampler, Cursor, check_lengths
from model.data.bpe import TokenizerPair
from model.data.ends import with_ends
from model.data.shards import Shards
from model.decoding.translator import Translator
from model.errors import JobError
from model.network.transformer import Transformer
from model.network.weights import build

ROWS = [([5, 6, 7], [8]), ([9], [10, 11]), ([4, 4, 5, 6], [7])]
READ = {
    "eos": [[5, 6, 7, EOS], [9, EOS], [4, 4, 5, 6, EOS]],
    "none": [[5, 6, 7], [9], [4, 4, 5, 6]],
    "bos+eos": [[BOS, 5, 6, 7, EOS], [BOS, 9, EOS], [BOS, 4, 4, 5, 6, EOS]],
}
every_value = pytest.mark.parametrize("ends", get_args(SourceEnds))


def translator(folder: Path, *models: Model) -> Translator:
    torch.manual_seed(0)
    built = [build(model, SIZE, SIZE).eval() for model in models]
    vocabulary = TokenizerPair.load(write_vocabulary(folder / "vocabulary"))
    return Translator(built[0], vocabulary, torch.device("cpu"), built[1:])


@every_value
@pytest.mark.parametrize("batching", ["buckets", "packed"])
def test_decoding_reads_the_tokens_that_training_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: SourceEnds, batching: str
) -> None:
    shards = Shards(write_shards(tmp_path / "shards", ROWS, files=1))
    sampler = BatchSampler(shards, 30, 1, batching, source_ends=ends)
    assert sampler.source.tolist() == [len(row) for row in READ[ends]]
    batch = sampler.read(np.arange(3), Cursor(), 0, 1, 0).micro_batches[0]
    if batch.packing:
        offsets = batch.packing.source.cu_seqlens.tolist()[:4]
        trained = [batch.source[a:b].tolist() for a, b in pairwise(offsets)]
    else:
        trained = [[token for token in row if token != PAD] for row in batch.source.tolist()]
    assert trained == READ[ends]

    seen: list[list[int]] = []
    encode = Transformer.encode

    def recorded(self: Transformer, source_BS: torch.Tensor, *rest: object) -> object:
        seen.extend([token for token in row if token != PAD] for row in source_BS.tolist())
        return encode(self, source_BS, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Transformer, "encode", recorded)
    own = translator(tmp_path, replace(MODEL, source_ends=ends))
    sources, targets = [source for source, _ in ROWS], [target for _, target in ROWS]
    for ask in (
        lambda: own.search(sources, Decoding(beam=2, max_extra=3)),
        lambda: own.log_probabilities(sources, targets),
        lambda: [own.attention_maps(*pair) for pair in ROWS],
    ):
        seen.clear()
        ask()
        assert sorted(seen) == sorted(READ[ends])


@every_value
def test_an_empty_source_is_read_as_eos(tmp_path: Path, ends: SourceEnds) -> None:
    assert with_ends([], ends) == [EOS]
    shards = Shards(write_shards(tmp_path / "shards", [([], [5]), ([6], [7])], files=1))
    read = BatchSampler(shards, 30, 1, source_ends=ends).read(np.arange(2), Cursor(), 0, 1, 0).micro_batches[0]
    assert [token for token in read.source[0].tolist() if token != PAD] == [EOS]
    (log_p, _) = translator(tmp_path, replace(MODEL, source_ends=ends)).log_probabilities([[], [6]], [[5], [7]])
    assert np.isfinite(log_p)


def test_learned_positions_leave_room_for_both(tmp_path: Path) -> None:
    learned = replace(MODEL, positions="learned", max_positions=6)
    longest = {"eos": 5, "none": 6, "bos+eos": 4}
    for ends in get_args(SourceEnds):
        config = replace(learned, source_ends=ends)
        own = translator(tmp_path / ends, config)
        assert own.longest_source == longest[ends]
        own.search([[5] * longest[ends]], Decoding(beam=1, max_extra=2))
        check_lengths(Shards(write_shards(tmp_path / ends / "fits", [([5] * longest[ends], [5])])), config)
        beyond = Shards(write_shards(tmp_path / ends / "beyond", [([5] * (longest[ends] + 1), [5])]))
        with pytest.raises(JobError, match="7 source pieces, more than the 6 learned positions"):
            check_lengths(beyond, config)


def test_the_models_of_an_ensemble_agree(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="model.source_ends is 'none', allowed is eos, as in the first model"):
        translator(tmp_path, MODEL, replace(MODEL, source_ends="none"))
