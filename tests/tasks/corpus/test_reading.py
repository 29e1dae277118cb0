"""Lines keep their numbers, whatever the bytes between them."""

import bz2
import gzip
import json
import lzma
import os
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_text import all_lines, archive

from infra.errors import BadData
from tasks.corpus import plain
from tasks.corpus.catalogue import TABLES, File, Text
from tasks.corpus.reading import read_lines, read_pairs

ODD = ["\x00", "\u2028", "\u0085", "\v", "\x0c", "\x1c", "\ufeff", "\ufffd", "é", "😀", " ", "a"]
odd_line = st.text(alphabet=st.one_of(st.sampled_from(ODD), st.characters(exclude_characters="\n\r", codec="utf-8")))


@given(text=st.lists(odd_line, max_size=20), ended=st.booleans(), crlf=st.booleans(), block=st.integers(1, 9))
@settings(max_examples=150)
def test_lines_split_at_line_feed_only(
    tmp_path_factory: pytest.TempPathFactory, text: list[str], ended: bool, crlf: bool, block: int
) -> None:
    path = tmp_path_factory.mktemp("lines") / "odd.en"
    end = "\r\n" if crlf else "\n"
    if text and text[0].startswith("\ufeff"):
        text[0] = "x" + text[0]
    whole = end.join(text) + (end if ended and text else "")
    path.write_bytes(whole.encode())
    expected = text if ended or not text or text[-1] else text[:-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "BLOCK", block + 3)
        assert all_lines(path) == expected


@given(data=st.binary(max_size=200))
@settings(max_examples=150)
def test_any_bytes_keep_their_line_numbers(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("bytes") / "raw"
    path.write_bytes(b"x" + data)
    lines = all_lines(path)
    assert len(lines) == (b"x" + data).count(b"\n") + (not data.endswith(b"\n"))
    for line, raw in zip(lines, (b"x" + data).split(b"\n"), strict=False):
        assert line == raw.decode("utf-8", "replace").removesuffix("\r")


def test_byte_order_mark_goes_and_utf16_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfone\ntwo\n")
    assert all_lines(tmp_path / "a") == ["one", "two"]
    (tmp_path / "b").write_bytes("one\n".encode("utf-16"))
    with pytest.raises(BadData, match="b is UTF-16"):
        all_lines(tmp_path / "b")


ROWS = [json.dumps({"english": f"A dog {n}.", "german": {"text": "Ein Hund."}}) for n in range(20)]


@pytest.mark.parametrize(
    ("line", "column", "sentence"),
    [
        ('{"a": "one", "b": null}', "c", "line 2 has no field 'c'; it has a, b"),
        ('{"a": {"b": 3}}', "a.b", "line 2 has 3, allowed is text"),
        ('{"a": {"b": "one"}}', "a", "allowed is text; name the field inside it, such as a.b"),
        ('{"a": "one"}', "a.b", "line 2 has no field 'b'; it has str"),
        ('{"a": "one"', "a", "line 2 is "),
        ('["one"]', "a", "allowed is a JSON object"),
    ],
)
def test_a_line_without_the_field_is_named(tmp_path: Path, line: str, column: str, sentence: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f"\n{line}\n")
    with pytest.raises(BadData, match="rows.jsonl, column ") as caught:
        all_lines(path, column=column)
    assert sentence in str(caught.value)


def test_fields_of_json_lines_become_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [{"a.b": "whole", "a": {"b": "nested", "c": "one\r\ntwo"}}, {"a.b": "\ud83d", "a": {"c": None}}]
    path.write_text("\n\n".join(map(json.dumps, rows)))
    assert all_lines(path, column="a.b") == ["whole", "\ufffd" * 3]
    assert all_lines(path, column="a.c") == ["one two", ""]


@given(rows=st.integers(1, 20), blank=st.integers(0, 3), mark=st.sampled_from(["", "\ufeff"]))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_json_lines_are_refused_by_their_content(tmp_path: Path, rows: int, blank: int, mark: str) -> None:
    path = tmp_path / "train.en"
    path.write_text(mark + "\n" * blank + "".join(f"{row}\n" for row in ROWS[:rows]))
    with pytest.raises(BadData) as caught:
        all_lines(path)
    assert str(caught.value).startswith("train.en has a JSON object on each line, allowed is text")
    assert all(suffix in str(caught.value) for suffix in TABLES)


@pytest.mark.parametrize(
    "lines",
    [
        ["{ A brace begins this line.", "{1} Smith says so.", "{}", '{"a": 1'],
        [*ROWS[:4], "A real sentence.", *ROWS],
        ["42", '"quoted"', "[1]", "null", "true"],
        ['{"a":' * 100_000],
        [],
    ],
    ids=["braces", "a sentence among the first", "other JSON", "deeply nested", "empty"],
)
def test_text_that_only_looks_like_json_is_read(tmp_path: Path, lines: list[str]) -> None:
    (tmp_path / "a").write_text("".join(f"{line}\n" for line in lines))
    assert all_lines(tmp_path / "a") == lines


@pytest.mark.parametrize(
    ("suffix", "compress"), [("xz", lzma.compress), ("bz2", bz2.compress), ("gz", gzip.compress), ("GZ", gzip.compress)]
)
def test_every_stream_of_a_file_is_read(tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]) -> None:
    path, streams = tmp_path / f"a.{suffix}", [compress(f"{n}\n{n}\n".encode()) for n in range(3)]
    for padding in (b"", b"\0" * 8, b"\0" * 100_000):
        path.write_bytes(padding.join(streams) + padding)
        assert all_lines(path) == ["0", "0", "1", "1", "2", "2"]
    for damaged in (
        streams[0] + b"\0" * 4 + streams[1][: len(streams[1]) // 2],
        streams[0] + streams[1][:1] + b"\xff" + streams[1][2:],
        streams[0] + b"what follows is no stream",
    ):
        path.write_bytes(damaged)
        with pytest.raises(BadData, match=rf"a\.{suffix} is cut short or damaged"):
            all_lines(path)
    large = os.urandom(300_000).hex()
    path.write_bytes(compress(large.encode()) * 2)
    assert all_lines(path) == [large * 2]
    assert all_lines(path.rename(tmp_path / "without a suffix")) == [large * 2]


def test_members_are_read_from_archives(tmp_path: Path) -> None:
    members = {"training/a.en": b"one\ntwo\n", "./top.de": b"eins\nzwei\n", "inner.fr.gz": gzip.compress(b"un\ndeux\n")}
    for suffix, mode in ((".tgz", "w:gz"), (".tar", "w"), (".tar.xz", "w:xz")):
        path = archive(tmp_path / f"all{suffix}", members, mode)
        assert all_lines(path, "training/a.en") == ["one", "two"]
        assert all_lines(path, "top.de") == ["eins", "zwei"]
        assert all_lines(path, "inner.fr.gz") == ["un", "deux"]
        with pytest.raises(BadData, match=r"no member b\.en; it has training/a\.en, top\.de, inner"):
            all_lines(path, "b.en")


def test_every_segment_of_a_line_is_read(tmp_path: Path) -> None:
    texts = ["One.", "Two, <b>bold</b>.", "", "Four."]
    lines = [f'<seg id="{n}"> {text} </seg>' for n, text in enumerate(texts)]
    for between in ("", " ", "</p><p>", "\n"):
        (tmp_path / "a.sgm").write_text("<doc><p>" + between.join(lines) + "</p></doc>\n")
        assert [text for block in read_lines(tmp_path / "a.sgm") for text in block] == texts
    (tmp_path / "a.sgm").write_text(f"{lines[0]} <seg>broken\n</seg>\n")
    with pytest.raises(BadData, match=r"a\.sgm has a segment that does not end on its line"):
        list(read_lines(tmp_path / "a.sgm"))


def pairs_of(source: Path, target: Path) -> list[pl.DataFrame]:
    first, second = (Text(File(path.name, sha256="0" * 64)) for path in (source, target))
    return list(read_pairs((first, second), (source, target)))


def test_long_lines_of_sgm_are_read_in_linear_time(tmp_path: Path) -> None:
    times = []
    for repeats in (20_000, 200_000):
        (tmp_path / "a.sgm").write_text("<seg " * repeats + "\n")
        begun = time.process_time()
        with pytest.raises(BadData, match="does not end on its line"):
            all_lines(tmp_path / "a.sgm")
        (tmp_path / "a.sgm").write_text("<seg>" * repeats + "x" + "</seg>" * repeats + "\n")
        (line,) = all_lines(tmp_path / "a.sgm")
        assert line == "<seg>" * (repeats - 1) + "x" + "</seg>" * (repeats - 1)
        times.append(time.process_time() - begun)
    assert times[1] < 40 * times[0] + 0.5, "ten times the text takes about ten times as long"


@given(count=st.integers(0, 30), rows=st.integers(1, 12))
@settings(max_examples=40)
def test_frames_keep_order_and_alignment(tmp_path_factory: pytest.TempPathFactory, count: int, rows: int) -> None:
    folder = tmp_path_factory.mktemp("pairs")
    (folder / "a.en").write_text("".join(f"source {n}\n" for n in range(count)))
    (folder / "a.de").write_text("".join(f"target {n}\n" for n in range(count)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.corpus.reading.ROWS", rows)
        frames = pairs_of(folder / "a.en", folder / "a.de")
    assert all(0 < frame.height <= rows for frame in frames)
    read = [row for frame in frames for row in frame.rows()]
    assert read == [(f"source {n}", f"target {n}") for n in range(count)]


@pytest.mark.parametrize(("more", "fewer", "rows"), [(7, 5, 3), (1, 0, 1), (100, 99, 1000), (6, 5, 1)])
def test_unequal_sides_name_both_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int, fewer: int, rows: int
) -> None:
    monkeypatch.setattr("tasks.corpus.reading.ROWS", rows)
    (tmp_path / "long.en").write_text("line\n" * more)
    (tmp_path / "short.de").write_text("line\n" * fewer)
    with pytest.raises(BadData, match=rf"long\.en has {more} lines and short\.de has {fewer}"):
        pairs_of(tmp_path / "long.en", tmp_path / "short.de")
    with pytest.raises(BadData, match=rf"short\.de has {fewer} lines and long\.en has {more}"):
        pairs_of(tmp_path / "short.de", tmp_path / "long.en")
