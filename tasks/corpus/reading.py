"""Reads corpus files as aligned lines, in bounded memory: plain or packed text, WMT's SGM, TMX, a column of a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from infra.errors import BadData
from tasks.corpus import archives, json_lines, plain, table_columns, tmx
from tasks.corpus.catalogue import TABLES, Text, text_suffix
from tasks.lazy_libraries import pl

ROWS = 100_000
"""Pairs per frame: two frames are cleaned at once, so more take memory and fewer do not keep two threads busy."""


def read_lines(path: Path, member: str = "", column: str = "") -> Iterator[pl.Series]:
    """The lines of a text, without their line ends, in series of any length; ``Text`` explains ``member``, ``column``.

    Each row of a table gives one line, even if the value has line ends; without a ``column``, rows of a ``.tsv`` are
    lines. ``.sgm`` gives the stripped text of its segments, with entities left as they are (as in sacreBLEU). Raises
    BadData naming the file when it is truncated, damaged, UTF-16, unsafe, expands too much, is JSON Lines under another
    name, or lacks the member or column.
    """
    label = _label(path, member, column)
    kind = text_suffix(member or path.name)
    with ExitStack() as stack, archives.read_errors_named(path, label):
        if kind == ".parquet":
            if member:
                raise BadData(f"{label} cannot be read: Parquet is not read out of an archive")
            yield from map(_series, table_columns.parquet(path, column, label))
            return
        stream = archives.open_text(path, member, stack)
        if kind == ".tmx":
            yield from map(_series, tmx.segments(stream, column, label))
            return
        plain.refuse_utf16(stream, label)
        if kind == ".csv":
            yield from map(_series, table_columns.csv(stream, column, label))
            return
        lines = plain.decoded(stream, label)
        blocks = map(pl.Series.to_list, lines)
        if kind == ".tsv" and column:
            yield from map(_series, table_columns.tsv(blocks, column, label))
        elif kind == ".jsonl":
            yield from map(_series, json_lines.values(blocks, column, label))
        elif kind in (".sgm", ".sgml"):
            yield from map(_series, plain.segments(blocks, label))
        else:
            formats = f"text with one sentence on each line, .sgm, or a column of {', '.join(TABLES)}"
            yield from json_lines.refuse(lines, label, formats)


def _series(lines: list[str]) -> pl.Series:
    return pl.Series(lines, dtype=pl.String)


def read_pairs(texts: tuple[Text, Text], paths: tuple[Path, Path]) -> Iterator[pl.DataFrame]:
    """Frames of at most ROWS aligned lines of two texts, columns ``source`` and ``target``; ``paths`` are their files.

    When one side has more lines than the other, raises BadData with both line counts after the last frame.
    """
    sides = [read_lines(path, text.member, text.column) for text, path in zip(texts, paths, strict=True)]
    buffered = [_series([]), _series([])]
    read = [0, 0]
    while True:
        for side in (0, 1):
            while len(buffered[side]) < ROWS and (block := next(sides[side], None)) is not None:
                buffered[side].append(block)
                read[side] += len(block)
        count = min(len(buffered[0]), len(buffered[1]), ROWS)
        if count:
            yield pl.DataFrame({"source": buffered[0][:count], "target": buffered[1][:count]})
        if len(buffered[0]) != len(buffered[1]) and count < ROWS:
            for side in (0, 1):
                read[side] += sum(len(block) for block in sides[side])
            source, target = (_label(path, text.member, text.column) for text, path in zip(texts, paths, strict=True))
            raise BadData(
                f"{source} has {read[0]} lines and {target} has {read[1]}: line n of one must translate line n of the "
                "other"
            )
        if not count:
            return
        buffered = [side[count:] for side in buffered]


def _label(path: Path, member: str, column: str) -> str:
    return path.name + (f", member {member}" if member else "") + (f", column {column}" if column else "")
