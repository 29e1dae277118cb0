"""Tests of BPE-dropout: its limits p = 0 and p = 1, its probabilities worked by hand, and that text survives."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

import tasks.bpe.bpe_dropout
from tasks.bpe.bpe_dropout import ByteCache, Merges, segment
from tasks.bpe.word_cache import Ragged
from tasks.stages.learn_bpe import Vocabulary, train_tokenizer

TEXT = ["aaaa abab abcabcab der Hund läuft, der Hund läuft nicht.", "banana bandana 1234 12 naïve 日本語日本"] * 3
TOKENIZER = train_tokenizer([pa.array(TEXT)], Vocabulary(size=300))
TOKENIZER.encode_special_tokens = True
MERGES, BYTES = Merges.of(TOKENIZER), ByteCache(TOKENIZER)

lines = st.lists(st.text(st.sampled_from("aabbcn ,.12äß日本 \u00a0")) | st.text() | st.sampled_from(TEXT), max_size=6)


def segmented(texts: list[str], p: float, seed: int = 1) -> list[list[int]]:
    return rows_of(segment(next(BYTES.encode([pa.array(texts, pa.string())])), MERGES, p, np.random.default_rng(seed)))


def rows_of(rows: Ragged) -> list[list[int]]:
    return [row.tolist() for row in np.split(rows.ids, np.cumsum(rows.lengths))[:-1]]


@settings(max_examples=200)
@given(texts=lines)
def test_without_dropout_the_pieces_are_those_of_the_library(texts: list[str]) -> None:
    assert segmented(texts, 0.0) == [e.ids for e in TOKENIZER.encode_batch(texts)]


@settings(max_examples=200)
@given(texts=lines, p=st.floats(0, 1), seed=st.integers(0, 9))
def test_decoding_gives_the_text_whatever_was_dropped(texts: list[str], p: float, seed: int) -> None:
    assert [TOKENIZER.decode(ids, skip_special_tokens=False) for ids in segmented(texts, p, seed)] == texts


def test_dropping_every_merge_gives_the_bytes() -> None:
    for text, ids in zip(TEXT, segmented(TEXT, 1.0), strict=True):
        assert len(ids) == len(f" {text}".encode())
        assert all(len(TOKENIZER.id_to_token(each)) == 1 for each in ids)


def test_drawings_are_equal_for_a_seed_and_differ_between_seeds() -> None:
    drawings = [segmented(TEXT, 0.3, seed) for seed in (1, 1, 2, 3)]
    assert drawings[0] == drawings[1]
    assert len({str(each) for each in drawings}) == 3
    assert len({str(row) for row in drawings[0][::2]}) > 1, "equal lines have equal pieces"


def test_rows_of_several_blocks_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = segmented([*TEXT, "", "x"], 0.0)
    monkeypatch.setattr(tasks.bpe.bpe_dropout, "CELLS_PER_BLOCK", 70)
    assert segmented([*TEXT, "", "x"], 0.0) == whole
    assert segmented([], 0.0) == []


P = 0.3


@pytest.mark.parametrize(
    ("merges", "word", "expected"),
    [
        # A chain: b joins a, then c joins ab; either may be dropped, and encoding ends there.
        ([("a", "b"), ("ab", "c")], "abc", {"abc": (1 - P) ** 2, "ab c": (1 - P) * P, "a b c": P}),
        # Two merges compete: the second is taken only where the first is dropped.
        ([("b", "c"), ("a", "b")], "abc", {"a bc": 1 - P, "ab c": P * (1 - P), "a b c": P**2}),
        # Each place of a merge is dropped by itself. Of "aaa" the first step joins the left pair, or else the right.
        ([("a", "a")], "aaa", {"aa a": 1 - P, "a aa": P * (1 - P), "a a a": P**2}),
        # A merge that a step dropped may be taken by the next one: the last step leaves out what remains.
        (
            [("a", "b"), ("c", "d")],
            "abcd",
            {"ab cd": (1 - P**2) * (1 - P), "ab c d": (1 - P) * P, "a b cd": P * (1 - P) * P, "a b c d": P**2},
        ),
    ],
)
def test_probabilities_are_those_worked_by_hand(
    merges: list[tuple[str, str]], word: str, expected: dict[str, float]
) -> None:
    pieces = ["x", *"abcd", *(a + b for a, b in merges)]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    marked, count = next(ByteCache(tokenizer).encode([pa.array([word])])), 40_000
    many = marked.take(np.zeros(count, np.int64))
    drawn = rows_of(segment(many, Merges.of(tokenizer), P, np.random.default_rng(1)))
    found = Counter(" ".join(pieces[i] for i in row) for row in drawn)
    assert sum(expected.values()) == pytest.approx(1)
    assert {text: n / count for text, n in found.items()} == pytest.approx(expected, abs=0.01)
