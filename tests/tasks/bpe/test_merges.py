"""Merges from counts are those of the library's trainer over running text, ties and runs of one letter included."""

import json
import random
import tracemalloc
from collections import Counter
from unittest.mock import patch

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_text import train_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from model.config.special_pieces import SPECIAL_TOKENS
from tasks.bpe.merges import learn_merges
from tasks.demo.corpus import content
from tasks.stages.learn_bpe import Vocabulary, untrained_tokenizer

LETTERS = ["a", "b", "c"]


def trained(lines: list[str], vocabulary: Vocabulary) -> Tokenizer:
    """The library's own way."""
    tokenizer = untrained_tokenizer(vocabulary)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary.size,
        min_frequency=vocabulary.min_frequency,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([lines], trainer)
    return tokenizer


@pytest.mark.parametrize("fields", [{}, {"lowercase": True, "nfkc": True}, {"min_frequency": 30}])
def test_the_file_is_the_library_s(fields: dict[str, int]) -> None:
    text = content("demo/train.en") + content("demo/train.de")
    lines = (
        text.decode(errors="replace").split("\n")[::9]
        + ["ﬁne  days,\u00a0½ of them", "Ａ ¨ b", "<unk> bunk", "<s> s"] * 40
    )
    theirs = trained(lines, Vocabulary(size=900, **fields))
    mine = train_tokenizer(
        [pa.array(lines[:1000]), pa.array(lines[1000:])], Vocabulary(size=theirs.get_vocab_size(), **fields)
    )
    assert json.loads(mine.to_str()) == json.loads(theirs.to_str())


def frames(counts: dict[str, int]) -> list[pl.DataFrame]:
    """The counts in two frames."""
    every = pl.DataFrame(
        {"chunk": list(counts), "count": list(counts.values())}, {"chunk": pl.String, "count": pl.Int64}
    )
    return [every[::2], every[1::2]]


WORD_COUNTS = st.dictionaries(st.text("abc", min_size=1, max_size=12), st.integers(1, 5), min_size=1, max_size=12)


@given(counts=WORD_COUNTS, min_frequency=st.integers(1, 4), room=st.integers(0, 30), fall=st.sampled_from([2, 3, 1000]))
def test_merges_are_the_library_s(counts: dict[str, int], min_frequency: int, room: int, fall: int) -> None:
    size = len(LETTERS) + room
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=min_frequency, initial_alphabet=LETTERS, show_progress=False
    )
    tokenizer.train_from_iterator([" ".join(Counter(counts).elements())], trainer)
    theirs = json.loads(tokenizer.to_str())["model"]
    # Pairs wait in groups of several sizes, and cells are looked at a few at a time.
    with patch("tasks.bpe.merges.THRESHOLD_RATIO", fall), patch("tasks.bpe.symbols.CELLS_PER_BLOCK", 7):
        pieces, merges = learn_merges(frames(counts), size, min_frequency, LETTERS, {c: ord(c) for c in LETTERS})
    assert merges == [tuple(merge) for merge in theirs["merges"]]
    assert pieces == theirs["vocab"]


def test_memory_hardly_grows_with_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two bytes a cell and four for each place of a pair that is kept, but no object for a word or for a rare pair."""
    monkeypatch.setattr("tasks.bpe.symbols.CELLS_PER_BLOCK", 1000)
    most = []
    for words in (20_000, 80_000):
        chance = random.Random(1)
        counts = frames({f"{chance.randrange(10**12):012}": 1 for _ in range(words)})
        digits = {c: ord(c) for c in "0123456789"}
        tracemalloc.start()
        learn_merges(counts, 300, 2, list(digits), digits)
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (most[1] - most[0]) / 60_000 < 400
