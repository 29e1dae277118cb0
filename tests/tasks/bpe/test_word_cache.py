"""Words encoded once give the same ids as whole lines, whatever the white space and the normaliser."""

import random
from collections import Counter
from itertools import chain

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_text import train_tokenizer
from tokenizers import Tokenizer

from model.data.bpe import with_plain_quotes
from tasks.bpe.word_cache import Ragged, WordCache
from tasks.bpe.word_counts import STABLE_CHARACTERS, chunk_text, count_chunks, split_into_chunks, sum_counts
from tasks.stages.learn_bpe import Vocabulary, add_tag

WORDS = ["A", "dog", "runs", "don't", "they'll", "'s", "3,000", "x86_64", "(see", "below).", "...", "ﬁne", "Ünü"]
TAG = "<synthetic>"
SPACES = [" ", " ", "  ", "   ", *"\t\u00a0\u0085\u2028\u200b\u3000\x1c\u00a8\u00b4"]


def tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    learnt = train_tokenizer([pa.array([" ".join(WORDS), "A dog runs and runs.", "dogs don't run"] * 3)], vocabulary)
    learnt.encode_special_tokens = True
    return learnt


def tagged(vocabulary: Vocabulary) -> Tokenizer:
    learnt = tokenizer(vocabulary)
    add_tag(learnt, TAG)
    return learnt


TOKENIZERS = {
    "plain": tokenizer(Vocabulary(size=300, min_frequency=1)),
    "lowercase": tokenizer(Vocabulary(size=300, min_frequency=1, lowercase=True)),
    "nfkc": tokenizer(Vocabulary(size=300, min_frequency=1, lowercase=True, nfkc=True)),
    "tag": tagged(Vocabulary(size=300, min_frequency=1)),
    "words": tokenizer(Vocabulary(size=260, min_frequency=4, tokens="words")),
    "scripts": tokenizer(Vocabulary(size=300, min_frequency=1, scripts=("Latin",))),
    "quotes": with_plain_quotes(tokenizer(Vocabulary(size=300, min_frequency=1))),
}
LINE = st.one_of(
    st.lists(st.sampled_from(WORDS + SPACES), max_size=12).map("".join),
    st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join),
    st.lists(st.sampled_from(WORDS), max_size=6).map(lambda words: " ".join([TAG, *words])),
    st.text(st.one_of(st.characters(codec="utf-8"), st.just(" "))),
)


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(max_examples=40)
@given(batches=st.lists(st.lists(LINE, max_size=6), max_size=3), max_words=st.sampled_from([3, 1000]))
def test_same_ids_as_whole_lines(kind: str, batches: list[list[str]], max_words: int) -> None:
    table = WordCache(TOKENIZERS[kind], max_words)
    arrays = [pa.array(lines, pa.string()) for lines in batches]
    expected = [TOKENIZERS[kind].encode(line, add_special_tokens=False).ids for line in chain(*batches)]
    for at_once in (max(len(batches), 1), 1):
        encoded = chain(*(table.encode(arrays[n : n + at_once]) for n in range(0, len(batches), at_once)))
        assert list(chain(*map(as_lists, encoded))) == expected


def as_lists(ragged: Ragged) -> list[list[int]]:
    ends = np.cumsum(ragged.lengths)
    return [ragged.ids[end - length : end].tolist() for end, length in zip(ends, ragged.lengths, strict=True)]


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=40)
@given(lines=st.lists(LINE, max_size=8))
def test_chunks_are_counted_as_in_whole_lines(name: str, lines: list[str]) -> None:
    tokenizer = TOKENIZERS[name]
    expected: Counter[str] = Counter()
    for line in lines:
        text = tokenizer.normalizer.normalize_str(line)
        expected.update(chunk_text(chunk) for chunk, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text))
    halves = [pa.array(half, pa.string()) for half in (lines[: len(lines) // 2], lines[len(lines) // 2 :])]
    assert dict(count_chunks(tokenizer, halves).iter_rows()) == expected


@pytest.mark.parametrize("name", TOKENIZERS)
def test_plain_words_are_cut_as_the_tokenizer_cuts(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    chance = random.Random(1)
    words = [*STABLE_CHARACTERS, *(f"a{c}'s1" for c in STABLE_CHARACTERS), "don't", "'S", "'ll'd", "we'Re"]
    words += ["".join(chance.choices(STABLE_CHARACTERS, k=chance.randint(1, 9))) for _ in range(3_000)]
    expected: Counter[str] = Counter()
    for word in words:
        text = tokenizer.normalizer.normalize_str(word)
        expected.update(chunk_text(chunk) for chunk, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text))
    counts = pl.DataFrame({"chunk": [f" {word}" for word in words], "count": [1] * len(words)})
    found = sum_counts(list(split_into_chunks(tokenizer, counts)))
    assert dict(found.iter_rows()) == expected
