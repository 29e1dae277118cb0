"""A vocabulary of whole words: the frequent ones by hand, text with its spaces back, ``<unk>`` for all others."""

import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_text import train_tokenizer

from infra.store.store import Artifact
from model.config.normalise import STANDARD
from model.config.special_pieces import SPECIAL_TOKENS, UNK
from model.data.bpe import TokenizerPair, write_normalising
from model.data.word_splitting import spacy_tokenizer
from model.errors import JobError
from tasks.stages.learn_bpe import Vocabulary, learn_bpe

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


def test_spacy_s_tokens_are_the_words_and_text_is_read_as_they_are(tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy")
    lines = {"en": ["The dog doesn't bark at 5pm.", "Don't!  Dogs bark."], "fr": ["L'homme n'aboie pas.", "Oui."]}
    expected = {
        language: {token.text.lower() for line in text for token in spacy.blank(language)(line) if token.text.strip()}
        for language, text in lines.items()
    }
    assert "n't" in expected["en"]
    vocabulary = Vocabulary(size=300, tokens="spacy", min_frequency=1, lowercase=True, joint=False)
    table = pa.table({"pair_id": ["1", "2"], "source": lines["en"], "target": lines["fr"]})
    pq.write_table(table, tmp_path / "pairs.parquet")
    out = tmp_path / "vocabulary"
    out.mkdir()
    learn_bpe.body(out, Artifact("clean", "text", tmp_path), vocabulary, languages=("en", "fr"))
    pieces = TokenizerPair.load(out)
    of_source = {piece.removeprefix("▁") for piece in words_of(pieces)[4:]}
    of_target = {piece.removeprefix("▁") for piece in pieces.target_pieces(range(4, pieces.target_size))}
    assert {"en": of_source, "fr": of_target} == expected
    version = tmp_path / "version"
    version.mkdir()
    write_normalising(out, STANDARD, version)
    read = TokenizerPair.load(version)
    assert read.source_pieces(read.encode_source(["dogs  don't bark!"])[0]) == ["▁dogs", "▁do", "▁n't", "▁bark", "▁!"]
    (ids,) = read.encode_target(lines["fr"][:1])
    assert read.decode_target(ids) == "l' homme n' aboie pas ."


def test_without_spacy_or_its_rules_the_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("spacy"):
        with pytest.raises(JobError, match="cannot split text of the language 'xx-none'"):
            spacy_tokenizer("xx-none")
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(JobError, match=r"needs the extra: pip install -e '.\[spacy\]'"):
        spacy_tokenizer("no-such")
