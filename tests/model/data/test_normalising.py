"""A version's vocabulary normalises sources exactly as ``clean`` normalised the training text."""

import unicodedata
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_text import train_tokenizer

from model.config.normalise import STANDARD, Normalise
from model.data.bpe import TokenizerPair, with_plain_quotes, write_normalising
from tasks.cleaning.filters import normalised
from tasks.stages.learn_bpe import Vocabulary

LINES = ["A dog runs over the green meadow.", "Two dogs run; the men don't.", "It's 2014 again, isn't it?"] * 3
MARKS = ["\u00a0", "\t", "\u00ad", "\u200b", "\ufeff", "\u2028", "\x85", "\x1c", "\x00", "„", "’", "e\u0301", "  "]
TEXT = st.lists(st.one_of(st.sampled_from([*MARKS, " ", "dog", "é"]), st.characters(codec="utf-8")), max_size=12).map(
    "".join
)
SETTINGS = st.builds(Normalise, *[st.booleans()] * 4)
KINDS = {"Zs", "Zl", "Zp", "Cc", "Cf", "Mn", "Pi", "Pf"}
MAY_CHANGE = [character for character in map(chr, range(0x11_0000)) if unicodedata.category(character) in KINDS]


def cleaned(lines: Sequence[str], normalise: Normalise) -> list[str]:
    """The lines as ``clean`` makes them."""
    frame = pl.DataFrame({"source": lines}, schema={"source": pl.String})
    return frame.select(normalised("source", normalise)).to_series().to_list()


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("learnt")
    train_tokenizer([pa.array(LINES)], Vocabulary(size=290, min_frequency=1)).save(str(folder / "tokenizer.json"))
    return folder


@given(lines=st.lists(TEXT, max_size=4), normalise=SETTINGS)
@settings(max_examples=150)
def test_a_source_is_read_as_clean_makes_training_text(learnt: Path, lines: list[str], normalise: Normalise) -> None:
    pieces = TokenizerPair.load(learnt)
    version = pieces.normalising(normalise)
    read = version.read(lines)
    assert read == [line.strip() for line in cleaned(lines, normalise)]
    assert version.normalise == normalise
    assert version.encode_source(read) == pieces.encode_source(read), "what is read so needs no other change"
    assert version.encode_target(lines) == pieces.encode_target(lines), "targets stay as they are"
    if normalise.control:  # else Python and tokenizers differ in which control characters are white space
        assert version.encode_source(lines) == version.encode_source(read), "the file alone does the same"


@pytest.mark.parametrize("normalise", [Normalise(*switches) for switches in product([True, False], repeat=4)])
def test_every_character_that_may_change_is_read_as_clean_makes_it(learnt: Path, normalise: Normalise) -> None:
    lines = [f"a{c}b  {c} e{c}" for c in MAY_CHANGE]
    made = cleaned(lines, normalise)
    assert TokenizerPair.load(learnt).normalising(normalise).read(lines) == [line.strip() for line in made]


@pytest.mark.parametrize("joint", [True, False])
def test_the_written_vocabulary_says_how_it_reads(learnt: Path, tmp_path: Path, joint: bool) -> None:
    folders = [tmp_path / name for name in ("learnt", "version", "again")]
    for folder in folders:
        folder.mkdir()
    with_plain_quotes(TokenizerPair.load(learnt).source).save(str(folders[0] / "tokenizer.json"))
    if not joint:
        TokenizerPair.load(learnt).target.save(str(folders[0] / "tokenizer.target.json"))
    write_normalising(folders[0], STANDARD, folders[1])
    write_normalising(folders[1], STANDARD, folders[2])
    version = TokenizerPair.load(folders[1])
    assert version.joint == joint
    assert version.normalise == Normalise(quotes=True), "as learnt with plain quotes, though the run does not ask"
    assert version.read([" „A“\u00a0\u00addog "]) == ['"A" dog']
    assert version.encode_target(["„A“\t"]) == TokenizerPair.load(learnt).encode_target(["„A“\t"])
    files = [{file.name: file.read_bytes() for file in folder.iterdir()} for folder in folders[1:]]
    assert files[0] == files[1], "a second time changes nothing"


def test_a_vocabulary_without_the_steps_reads_text_as_it_is(learnt: Path) -> None:
    pieces = TokenizerPair.load(learnt)
    assert pieces.normalise == Normalise(nfc=False, control=False, white_space=False)
    assert pieces.read([" a\u00a0\tb "]) == ["a\u00a0\tb"]
