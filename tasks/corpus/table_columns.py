"""Reads a column of a table as lines: CSV, tab-separated text, Parquet. Line ends inside a value become spaces.

A column is named as in the first row, or, in CSV and TSV without such a row, numbered from 1. In Parquet it
may be a field of a struct: ``translation.en``.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from csv import Error as CsvError
from csv import reader
from pathlib import Path
from typing import Any

from infra.errors import BadData
from tasks.corpus.plain import LONGEST
from tasks.lazy_libraries import pa, pc, pq

TOGETHER = 10_000
"""Rows per list."""
_LINE_ENDS = re.compile(r"\r\n|\r|\n")


def csv(stream: io.BufferedReader, column: str, label: str) -> Iterator[list[str]]:
    """A column separated by commas and quoted by ``"``. Raises BadData if rows differ in width or a quote is open."""
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")
    rows = reader(_short_lines(text, label), strict=True)
    try:
        yield from _column(rows, column, label)
    except CsvError as error:
        raise BadData(
            f"{label} is no CSV at line {rows.line_num} ({error}): is a quote open or not doubled?"
        ) from error


def tsv(blocks: Iterable[list[str]], column: str, label: str) -> Iterator[list[str]]:
    """A column separated by tabs, without quoting."""
    return _column((line.split("\t") if line else [] for block in blocks for line in block), column, label)


def parquet(path: Path, column: str, label: str) -> Iterator[list[str]]:
    """A column of text; nulls become empty lines."""
    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        top, *fields = [column] if column in schema.names else column.split(".")
        if schema.names.count(top) != 1:
            raise BadData(f"{path.name} must have one column {top!r}; it has {', '.join(schema.names[:20]) or 'none'}")
        _check(schema.field(top).type, fields, label)
        for batch in file.iter_batches(TOGETHER, columns=[column]):
            yield _lines(batch.column(top), fields)


def _lines(values: Any, fields: list[str]) -> list[str]:
    for field in fields:
        values = pc.struct_field(values, field)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    # Strings of Parquet may be invalid UTF-8.
    return [one_line(value) for value in values.cast(pa.large_binary()).to_pylist()]


def _column(rows: Iterable[list[str]], column: str, label: str) -> Iterator[list[str]]:
    at = width = -1
    found: list[str] = []
    for number, row in enumerate(rows, 1):
        if at < 0:
            at = _column_index(row, column, label)
            width = len(row)
            if not column.isdecimal():
                continue
        if not row and width > 1:
            continue
        row = row or [""]  # a blank row of a table with one column is an empty value
        if len(row) != width:
            raise BadData(
                f"{label} has {len(row)} columns in row {number} and {width} in the first; if a separator is part of "
                "the text, replace it, or in a CSV file quote the text"
            )
        found.append(_LINE_ENDS.sub(" ", row[at]))
        if len(found) == TOGETHER:
            yield found
            found = []
    yield found


def _column_index(row: list[str], column: str, label: str) -> int:
    if column.isdecimal():
        if not 1 <= int(column) <= len(row):
            raise BadData(f"{label}: the first row has {len(row)} columns")
        return int(column) - 1
    if row.count(column) != 1:
        raise BadData(f"{label}: the first row must name it once, but it is {', '.join(row)[:200]!r}")
    return row.index(column)


def _short_lines(text: io.TextIOWrapper, label: str) -> Iterator[str]:
    while line := text.readline(LONGEST):
        if len(line) == LONGEST and not line.endswith(("\r", "\n")):
            raise BadData(f"{label} has a line of more than {LONGEST:,} characters: that is no text")
        yield line


def _check(kind: Any, fields: list[str], label: str) -> None:
    for field in fields:
        if not pa.types.is_struct(kind) or kind.get_field_index(field) < 0:
            raise BadData(f"{label}: {kind} has no field {field}")
        kind = kind.field(field).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise BadData(f"{label} holds {kind}, not text")


def one_line(value: bytes | None) -> str:
    """The text without line ends; invalid UTF-8 becomes U+FFFD."""
    return _LINE_ENDS.sub(" ", (value or b"").decode("utf-8", "replace"))
