"""Any stream of bytes gives one output line per input line, in order, before the input ends, in bounded memory."""

import json
import os
import threading
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.inference.line_blocks import STDIO, line_blocks, open_input, open_output
from flows.inference.translate_stream import TranslationStream
from infra.errors import BadConfiguration
from model.decoding.translation import Hypothesis, Translation

PARTS = [
    b"a b",
    b"\n",
    b"\r\n",
    b"\r",
    b"\xff",
    b"\xe2\x80\xa8",
    b"\xc2\x85",
    b"\x00",
    b"\xef\xbb\xbf",
    "é".encode(),
    b"",
]
BYTES = st.lists(st.sampled_from(PARTS), max_size=12).map(b"".join)


def line_of(text: str, longest: int = 1) -> Translation:
    return Translation((Hypothesis((7,), 2, -2.0, -1.0, True, text),), [[7] * longest])


def upper(sources: list[str]) -> list[Translation]:
    """Replaces a model: one line for each source."""
    return [line_of(" ".join(source.upper().splitlines())) for source in sources]


def stream(translate=upper, as_json: bool = False, seen: int = 10) -> TranslationStream:  # type: ignore[no-untyped-def]
    return TranslationStream(translate, seen, as_json)


def blocks_of(data: bytes, most: int) -> Iterator[list[bytes]]:
    """As through a pipe, in writes of odd sizes."""
    reading, writing = os.pipe()

    def write() -> None:
        for start in range(0, len(data), 40_001):
            os.write(writing, data[start : start + 40_001])
        os.close(writing)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield from line_blocks(reading, most)
    finally:
        writer.join()
        os.close(reading)


@settings(max_examples=60)
@given(data=BYTES, most=st.integers(1, 4), as_json=st.booleans())
def test_lines_out_are_lines_in_for_any_bytes_and_block(data: bytes, most: int, as_json: bool) -> None:
    expected = data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
    out = b"".join(stream(as_json=as_json).translate_blocks(blocks_of(data, most)))
    assert out.count(b"\n") == expected
    assert len(out.decode().splitlines()) == expected
    assert out == b"".join(stream(as_json=as_json).translate_blocks(blocks_of(data, 1000)))
    if as_json:
        rows = [json.loads(line) for line in out.splitlines()]
        assert [each["line"] for each in rows] == list(range(1, expected + 1))


def test_carriage_returns_and_a_byte_order_mark_are_no_text() -> None:
    out = b"".join(stream().translate_blocks(iter([[b"\xef\xbb\xbfa\r", b"b\r\r"], [b"\xef\xbb\xbfc"]])))
    assert out.decode() == "A\nB\n\ufeffC\n"


@settings(max_examples=20)
@given(lengths=st.lists(st.sampled_from([0, 1, 70_000, 400_000]), max_size=6), most=st.integers(1, 3))
def test_blocks_hold_every_line_whole_and_at_most_so_many(lengths: list[int], most: int) -> None:
    lines = [b"x" * length for length in lengths]
    found = list(blocks_of(b"".join(line + b"\n" for line in lines), most))
    assert [line for block in found for line in block] == lines
    assert all(1 <= len(block) <= most for block in found)


def test_an_answer_comes_while_the_input_pauses() -> None:
    reading, writing = os.pipe()
    answers = iter(stream().translate_blocks(line_blocks(reading, 1000)))
    for sent, expected in ((b"a\nb\nhal", b"A\nB\n"), (b"f\n", b"HALF\n")):
        os.write(writing, sent)
        assert next(answers) == expected  # type: ignore[call-overload]
    os.write(writing, b"end")
    os.close(writing)
    assert list(answers) == [b"END\n"]
    os.close(reading)


def test_a_slow_drip_does_not_wait_for_a_full_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.inference.line_blocks.FLUSH_AFTER_SECONDS", 60)
    monkeypatch.setattr("flows.inference.line_blocks.WAIT_SECONDS", -1)
    reading, writing = os.pipe()
    os.write(writing, b"a\n" * 3)
    assert next(line_blocks(reading, 1000)) == [b"a"] * 3
    os.close(writing)
    os.close(reading)


def test_memory_does_not_grow_with_the_input(tmp_path: Path) -> None:
    file = tmp_path / "in"
    peaks = []
    held = 0

    def translate(sources: list[str]) -> list[Translation]:
        nonlocal held
        held = max(held, len(sources))
        return upper(sources)

    for lines in (2_000, 100_000):
        file.write_bytes(b"The old woman sees a dog.\n" * lines)
        with open_input(file) as descriptor:
            tracemalloc.start()
            assert (
                sum(out.count(b"\n") for out in stream(translate).translate_blocks(line_blocks(descriptor, 256)))
                == lines
            )
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert held == 256
    # The input grew by 2.5 MB. A factor would fail on what other threads of the process allocate meanwhile.
    assert peaks[1] < peaks[0] + 1_000_000


def test_warnings_name_the_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    def translate(sources: list[str]) -> list[Translation]:
        return [
            Translation((), [[7] * 99], refusal="99 pieces") if "long" in s else line_of(s, 11 if "odd" in s else 1)
            for s in sources
        ]

    said = stream(translate)
    out = b"".join(said.translate_blocks([[b"a", b"long"], [b"odd", b"\xff", b"\xef\xbf\xbd", b"odd", b"long"]]))
    assert out.decode() == "a\n\nodd\n\ufffd\n\ufffd\nodd\n\n"
    assert f"{said.untranslated}" == "not translated, left empty: 2 lines, the first is line 2"
    assert [remark.rpartition(": ")[2] for remark in said.warnings] == ["line 4", "2 lines, the first is line 3"]
    assert capsys.readouterr().err == "repro: line 2 has 99 pieces\nrepro: line 7 has 99 pieces\n"
    row = json.loads(next(iter(stream(translate, as_json=True).translate_blocks([[b"long"]]))))
    assert (row["hypotheses"], row["error"]) == ([], "line 1 has 99 pieces")
    two = stream(lambda _: [replace(line_of("A. B."), sources=[[7], [7]])])
    assert [*two.translate_blocks([[b"a. b."]])] == [b"A. B.\n"]
    assert two.warnings == [
        "translated as several sentences (--split never: whole, as a run's sets are scored): line 1"
    ]


def test_a_file_appears_whole_or_lies_beside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    out.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), open_output(out) as write:
        write(b"half")
        raise KeyboardInterrupt
    [beside] = [path for path in tmp_path.iterdir() if path != out]
    assert (out.read_bytes(), beside.read_bytes()) == (b"old", b"half")
    assert str(beside) in capsys.readouterr().err
    beside.unlink()
    link = tmp_path / "link"
    link.symlink_to(out)
    with open_output(link) as write:
        write(b"new")
        assert out.read_bytes() == b"old"
    assert out.read_bytes() == b"new"
    with pytest.raises(KeyboardInterrupt), open_output(out):
        raise KeyboardInterrupt
    assert sorted(tmp_path.iterdir()) == [link, out]
    with open_output(Path("/dev/null")) as write:
        write(b"nothing")
    assert not Path("/dev/null").is_file()


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    for name, why in (("missing", "No such file.*echo .* repro translate"), (".", "it is a folder")):
        with pytest.raises(BadConfiguration, match=f"the input .* cannot be read: {why}"), open_input(tmp_path / name):
            pass
    for name in ("no/where", "."):
        with pytest.raises(BadConfiguration, match="the output .* cannot be written"), open_output(tmp_path / name):
            pass
    assert Path("-") == STDIO


def test_blocks_grow_while_they_are_translated_quickly(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"".join(b"%d\n" % number for number in range(1000)))

    def sizes(most: int) -> list[int]:
        with open_input(file) as descriptor:
            blocks = list(line_blocks(descriptor, 10, most=most))
        assert [line for block in blocks for line in block] == [b"%d" % number for number in range(1000)]
        return [len(block) for block in blocks]

    assert sizes(200) == [10, 20, 40, 80, 160, 200, 200, 200, 90]
    assert sizes(0) == [10] * 100
