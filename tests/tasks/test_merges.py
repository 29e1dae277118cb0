"""Merges from counts are those of the library's trainer over running text, ties and runs of one letter included."""

import json
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from model.bpe import SPECIALS
from tasks.demo_corpus import content
from tasks.learn_bpe import Vocabulary, learn, untrained
from tasks.merges import learn_merges

LETTERS = ["a", "b", "c"]


def trained(lines: list[str], vocabulary: Vocabulary) -> Tokenizer:
    """The library's own way."""
    tokenizer = untrained(vocabulary)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary.size,
        min_frequency=vocabulary.min_frequency,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([lines], trainer)
    return tokenizer


@pytest.mark.parametrize("fields", [{}, {"lowercase": True, "nfkc": True}, {"min_frequency": 30}])
def test_the_file_is_the_library_s(fields: dict[str, int]) -> None:
    text = content("demo/train.en") + content("demo/train.de")
    lines = text.decode(errors="replace").split("\n")[::9] + ["ﬁne  days,\u00a0½ of them", "Ａ ¨ b"] * 40
    theirs = trained(lines, Vocabulary(size=900, **fields))
    mine = learn([pa.array(lines[:1000]), pa.array(lines[1000:])], Vocabulary(size=theirs.get_vocab_size(), **fields))
    assert json.loads(mine.to_str()) == json.loads(theirs.to_str())


WORD_COUNTS = st.dictionaries(st.text("abc", min_size=1, max_size=12), st.integers(1, 5), min_size=1, max_size=12)


@given(counts=WORD_COUNTS, min_frequency=st.integers(1, 4), room=st.integers(0, 30))
def test_merges_are_the_library_s(counts: dict[str, int], min_frequency: int, room: int) -> None:
    size = len(LETTERS) + room
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=min_frequency, initial_alphabet=LETTERS, show_progress=False
    )
    tokenizer.train_from_iterator([" ".join(Counter(counts).elements())], trainer)
    theirs = json.loads(tokenizer.to_str())["model"]
    mine = learn_merges(counts, size, min_frequency, LETTERS)
    assert mine.merges == [tuple(merge) for merge in theirs["merges"]]
    assert mine.vocabulary == theirs["vocab"]


def test_progress_is_told() -> None:
    heard: list[tuple[int, int]] = []
    counts = {f"{n:05}": 1 + n % 7 for n in range(3_000)}
    learn_merges(counts, 1_200, 1, list("0123456789"), lambda done, total: heard.append((done, total)))
    assert heard
    assert all(total == 1_200 for _, total in heard)
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)
