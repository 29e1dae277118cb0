"""Tests of the tokenizers: any text survives the round trip, markup is text, vocabularies are joint or separate."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_text import train_tokenizer

from model.config.special_pieces import BOS, EOS, PAD, SPECIAL_TOKENS, UNK
from model.data.bpe import TokenizerPair, printable_piece, with_plain_quotes
from model.errors import JobError
from tasks.stages.learn_bpe import Vocabulary

SOURCE = ["A dog runs over the green meadow.", "Two dogs run; the men don't.", "It's 2014 again, isn't it?"] * 3
TARGET = ["Ein Hund läuft über die grüne Wiese.", "Zwei Hunde laufen, die Männer nicht.", "Es ist wieder 2014."] * 3
TEXT = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from(" .<>/s\t\n\u00a0\u0085\u2028")))


def folder_with(folder: Path, *, joint: bool) -> Path:
    vocabulary = Vocabulary(size=290, joint=joint, min_frequency=1)
    if joint:
        train_tokenizer([pa.array(SOURCE), pa.array(TARGET)], vocabulary).save(str(folder / "tokenizer.json"))
    else:
        train_tokenizer([pa.array(SOURCE)], vocabulary).save(str(folder / "tokenizer.json"))
        train_tokenizer([pa.array(TARGET)], vocabulary).save(str(folder / "tokenizer.target.json"))
    return folder


@pytest.fixture(scope="module")
def joint(tmp_path_factory: pytest.TempPathFactory) -> TokenizerPair:
    return TokenizerPair.load(folder_with(tmp_path_factory.mktemp("joint"), joint=True))


@pytest.fixture(scope="module")
def separate(tmp_path_factory: pytest.TempPathFactory) -> TokenizerPair:
    return TokenizerPair.load(folder_with(tmp_path_factory.mktemp("separate"), joint=False))


@pytest.mark.parametrize("joint", [True, False])
def test_a_source_is_read_with_plain_quotes_where_training_text_had_them(tmp_path: Path, joint: bool) -> None:
    folder = folder_with(tmp_path, joint=joint)
    before = TokenizerPair.load(folder)
    with_plain_quotes(before.source).save(str(folder / "tokenizer.json"))
    after, typed = TokenizerPair.load(folder), "Er sagte: „Das ist ‚gut‘“, wie’s war. «Ja»"
    plain = typed.translate(str.maketrans("„“«»‚‘’", '"' * 4 + "'" * 3))
    untouched = TokenizerPair.load(folder_with(tmp_path, joint=joint))
    assert (after.normalise.quotes, untouched.normalise.quotes) == (True, False)
    assert after.encode_source([typed]) == untouched.encode_source([plain]) != untouched.encode_source([typed])
    assert after.encode_target([typed]) == untouched.encode_target([typed]), "references stay as published"
    assert after.decode_target(after.encode_target([typed])[0]) == typed
    assert after.encode_source(["</s>"]) == untouched.encode_source(["</s>"]), "markup is text as before"
    assert after.encode_target(["</s>"]) == untouched.encode_target(["</s>"])


@given(line=TEXT)
def test_any_text_survives(joint: TokenizerPair, separate: TokenizerPair, line: str) -> None:
    for pieces in (joint, separate):
        (ids,) = pieces.encode_target([line])
        assert pieces.decode_target(ids) == line
        assert pieces.decode_target([BOS, *ids, EOS, PAD]) == line


@given(line=st.lists(st.sampled_from([*SPECIAL_TOKENS, " ", "a", "<", "s>", "\n"])).map("".join))
def test_markup_in_the_text_never_becomes_a_special(joint: TokenizerPair, line: str) -> None:
    (ids,) = joint.encode_source([line])
    assert not {PAD, BOS, EOS, UNK} & set(ids)
    assert joint.decode_target(ids) == line


@given(line=st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"])))
def test_pieces_read_as_text(joint: TokenizerPair, line: str) -> None:
    (ids,) = joint.encode_source([line])
    shown = joint.source_pieces(ids)
    assert len(shown) == len(ids)
    if line.isascii() and line:
        assert "".join(shown) == "▁" + line
    assert all(piece.isprintable() for piece in shown)


def test_readable_pieces() -> None:
    assert [printable_piece(p) for p in ("ĠMÃ¤nner", "Ã", "Ċ", "</s>", ",")] == ["▁Männer", "\\xc3", "\\n", "</s>", ","]


def test_a_broken_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"has no tokenizer\.json"):
        TokenizerPair.load(tmp_path)
    folder_with(tmp_path, joint=False)
    target = tmp_path / "tokenizer.target.json"
    whole = target.read_bytes()
    target.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(JobError, match=r"tokenizer\.target\.json is not a readable tokenizer"):
        TokenizerPair.load(tmp_path)
    target.write_bytes(whole.replace(b"</s>", b"<end>"))
    with pytest.raises(JobError, match=r"allowed is \(0, 1, 2, 3\)"):
        TokenizerPair.load(tmp_path)
