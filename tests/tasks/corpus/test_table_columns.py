"""A column of a table reads like the lines it holds, whatever the table's form."""

import csv
import gzip
import io
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_text import all_lines

from infra.errors import BadData

ODD = ["\x00", "\u2028", "\u0085", "\x0c", "\ufeff", '"', ",", "&", "<", "é", "😀", " ", "a"]
value = st.text(alphabet=st.one_of(st.sampled_from(ODD), st.characters(exclude_characters="\n\r\t", codec="utf-8")))
rows = st.lists(st.tuples(value, value), min_size=1, max_size=12)


@given(rows=rows)
@settings(max_examples=60)
def test_all_forms_give_the_same_lines(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]) -> None:
    folder = tmp_path_factory.mktemp("tables")
    with io.StringIO(newline="") as text:
        csv.writer(text).writerows([("en", "de"), *rows])
        (folder / "a.csv.gz").write_bytes(gzip.compress(text.getvalue().encode()))
    (folder / "a.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8", newline="")
    table = {"en": [a for a, _ in rows], "de": [b for _, b in rows]}
    pl.DataFrame(table, schema={"en": pl.String, "de": pl.String}).write_parquet(folder / "a.parquet")
    translations = pa.array([{"en": a, "de": b} for a, b in rows])
    pq.write_table(pa.table({"translation": translations}), folder / "nested.parquet")
    for at, side in enumerate(("en", "de")):
        assert all_lines(folder / "a.csv.gz", column=side) == table[side]
        assert all_lines(folder / "a.parquet", column=side) == table[side]
        assert all_lines(folder / "nested.parquet", column=f"translation.{side}") == table[side]
        assert all_lines(folder / "a.csv.gz", column=f"{at + 1}") == [side, *table[side]]
        if not rows[0][0].startswith("\ufeff"):
            assert all_lines(folder / "a.tsv", column=f"{at + 1}") == table[side]


def test_line_ends_inside_values_go_and_nulls_are_empty(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('n,en\r\n1,"one\r\ntwo"\r\n\r\n2,\r\n', newline="")
    assert all_lines(tmp_path / "a.csv", column="en") == ["one two", ""]
    pl.DataFrame({"en": ["one\ntwo", None, "three"]}).write_parquet(tmp_path / "a.parquet")
    assert all_lines(tmp_path / "a.parquet", column="en") == ["one two", "", "three"]
    (tmp_path / "a.tsv").write_text("de\ten\neins\tone\n")
    assert all_lines(tmp_path / "a.tsv", column="en") == ["one"]


def test_blank_lines_between_rows_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("1\tone\n\n2\ttwo\n\n")
    assert all_lines(tmp_path / "a.tsv", column="2") == ["one", "two"]
    (tmp_path / "b.tsv").write_text("one\n\ntwo\n")
    assert all_lines(tmp_path / "b.tsv", column="1") == ["one", "", "two"], "of one column they are values"


def test_dictionaries_are_text_and_broken_text_is_replaced(tmp_path: Path) -> None:
    words = pa.array(["a", "b", "a"]).dictionary_encode()
    broken = pa.StringArray.from_buffers(1, pa.array([0, 2], pa.int32()).buffers()[1], pa.py_buffer(b"x\xff"))
    pq.write_table(pa.table({"en": words}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"en": broken}), tmp_path / "b.parquet")
    assert all_lines(tmp_path / "a.parquet", column="en") == ["a", "b", "a"]
    assert all_lines(tmp_path / "b.parquet", column="en") == ["x\ufffd"]


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("en,de\na,b\nc\n", "en"),
        ("en,de\na,b\n", "fr"),
        ("en,en\na,b\n", "en"),
        ("a,b\n", "3"),
        ('en\n"open\nfor ever\n', "en"),
        ('en\n"a"b\n', "en"),
        ("en\n" + "x" * 140_000 + "\n", "en"),
    ],
)
def test_a_bad_table_is_named(tmp_path: Path, text: str, column: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(BadData, match=rf"^a\.csv, column {column}\b"):
        all_lines(tmp_path / "a.csv", column=column)


def test_a_column_that_is_no_text_and_a_damaged_file_are_refused(tmp_path: Path) -> None:
    table = pa.table({"n": [1], "s": [{"en": "x"}]})
    file = tmp_path / "a.parquet"
    pq.write_table(table, file)
    for column in ("en", "n", "s.de"):
        with pytest.raises(BadData, match=r"a\.parquet"):
            all_lines(file, column=column)
    whole = file.read_bytes()
    for bad in (b"", b"PAR1", whole[: len(whole) // 2], b"text\n" * 100):
        file.write_bytes(bad)
        with pytest.raises(BadData, match=r"a\.parquet, column n"):
            all_lines(file, column="n")


TMX = """<?xml version="1.0"?><!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><prop type="x">no text</prop>
    <tuv xml:lang="EN-gb"><seg>One &amp; <bpt i="1">{b}</bpt>two<ept i="1">{/b}</ept></seg></tuv>
    <tuv xml:lang="de"><seg>Eins <hi>und</hi>
zwei</seg></tuv></tu>
<tu><tuv xml:lang="de"><seg>allein</seg></tuv></tu>
<tu><tuv lang="en"><seg>first</seg></tuv><tuv lang="en"><seg>second</seg></tuv><tuv lang="de"><seg/></tuv></tu>
</body></tmx>
"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_units_keep_their_number_in_both_languages(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.tmx").write_bytes(TMX.encode(encoding))
    assert all_lines(tmp_path / "a.tmx", column="en") == ["One & two", "", "first"]
    assert all_lines(tmp_path / "a.tmx", column="en_GB") == ["One & two", "", ""]
    assert all_lines(tmp_path / "a.tmx", column="de") == ["Eins und zwei", "allein", ""]
    with pytest.raises(BadData, match=r"column fr: no unit has that language; they have de, en, en-gb"):
        all_lines(tmp_path / "a.tmx", column="fr")


def test_entities_and_torn_memories_are_refused(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE tmx [<!ENTITY a "x"><!ENTITY b "&a;&a;">]><tmx><body>&b;</body></tmx>'
    (tmp_path / "a.tmx").write_text(bomb)
    with pytest.raises(BadData, match="declares an entity"):
        all_lines(tmp_path / "a.tmx", column="en")
    for end in (0, 5, len(TMX) // 2, len(TMX) - 9):
        (tmp_path / "a.tmx").write_text(TMX[:end])
        with pytest.raises(BadData, match="is no TMX, or cut short or damaged"):
            all_lines(tmp_path / "a.tmx", column="en")
