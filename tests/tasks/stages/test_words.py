"""A vocabulary of whole words: the frequent ones by hand, text with its spaces back, ``<unk>`` for all others."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from model.config.special_pieces import SPECIAL_TOKENS, UNK
from model.data.bpe import TokenizerPair
from tasks.stages.learn_bpe import Vocabulary, train_tokenizer

WORDS = Vocabulary(size=300, tokens="words", min_frequency=2, lowercase=True)
TEXT = pa.array(["Der Hund läuft, der Mann läuft nicht.", "Ein Hund (der alte Hund) läuft nicht!", "Der Mann."])


def learnt(folder: Path, vocabulary: Vocabulary, text: pa.Array = TEXT) -> TokenizerPair:
    train_tokenizer([text], vocabulary).save(str(folder / "tokenizer.json"))
    return TokenizerPair.load(folder)


def words_of(pieces: TokenizerPair) -> list[str]:
    return pieces.source_pieces(range(pieces.source_size))


def test_the_vocabulary_is_the_frequent_words_in_their_order(tmp_path: Path) -> None:
    # der 3, hund 3, läuft 3; mann 2, nicht 2, "." 2; once: "der" without a space, (, ein, alte, ), !, the comma.
    expected = ["▁der", "▁hund", "▁läuft", "▁mann", "▁nicht", "."]
    assert words_of(learnt(tmp_path, WORDS)) == [*SPECIAL_TOKENS, *expected]
    assert words_of(learnt(tmp_path, replace(WORDS, min_frequency=3)))[4:] == expected[:3]
    assert "▁Der" in words_of(learnt(tmp_path, replace(WORDS, lowercase=False)))


def test_text_comes_back_with_its_spaces_lower_cased_and_without_unknown_words(tmp_path: Path) -> None:
    pieces = learnt(tmp_path, replace(WORDS, min_frequency=1))
    line = "Ein alter Hund (der läuft), nicht der Mann!"
    (ids,) = pieces.encode_target([line])
    assert ids.count(UNK) == 2, "alter, and the comma behind a bracket"
    assert pieces.decode_target(ids) == "ein hund (der läuft nicht der mann!"
    for known in TEXT.to_pylist():
        (ids,) = pieces.encode_target([known])
        assert UNK not in ids
        assert pieces.decode_target(ids) == known.lower()


def test_foreign_words_are_no_words(tmp_path: Path) -> None:
    text = pa.array(["Hund Жук"] * 5)
    assert words_of(learnt(tmp_path, WORDS, text))[4:] == ["▁hund", "▁жук"]
    latin = learnt(tmp_path, replace(WORDS, scripts=("Latin",)), text)
    assert words_of(latin)[4:] == ["▁hund"]
    assert latin.source_pieces(latin.encode_source(["Hund Жук"])[0]) == ["▁hund", "<unk>"]
