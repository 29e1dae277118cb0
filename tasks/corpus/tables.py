"""A column of a table as lines: CSV, tab-separated text, Parquet. A row is a line; line ends inside a value go.

A column is called by its name, which then stands in the first row of CSV and TSV, or there by its number, counted from
1, where no row of names comes first. Parquet's may be a field of a structure: ``translation.en``.
"""

import io
import re
from collections.abc import Iterable, Iterator
from csv import Error as CsvError
from csv import reader
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from infra.errors import BadData
from tasks.corpus.plain import LONGEST

TOGETHER = 10_000
"""Rows given at once."""
_LINE_ENDS = re.compile(r"\r\n|\r|\n")


def csv(stream: io.BufferedReader, column: str, told: str) -> Iterator[list[str]]:
    """Separated by commas, quoted by ``"``. Raises BadData where rows differ in width or a quote stays open."""
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")
    rows = reader(_short_lines(text, told), strict=True)
    try:
        yield from _column(rows, column, told)
    except CsvError as error:
        raise BadData(f"{told} is no CSV at line {rows.line_num} ({error}): is a quote open or not doubled?") from error


def tsv(blocks: Iterable[list[str]], column: str, told: str) -> Iterator[list[str]]:
    """Separated by tabs, nothing quoted."""
    return _column((line.split("\t") for block in blocks for line in block), column, told)


def parquet(path: Path, member: str, column: str, told: str) -> Iterator[list[str]]:
    """A column of text; nulls are empty lines."""
    if member:
        raise BadData(f"{told} cannot be read: Parquet is not read out of an archive")
    with pa.parquet.ParquetFile(path) as file:
        names = file.schema_arrow.names
        top, *fields = [column] if column in names else column.split(".")
        if names.count(top) != 1:
            raise BadData(f"{path.name} has no one column {top!r}; it has {', '.join(names[:20]) or 'none'}")
        _check(file.schema_arrow.field(top).type, fields, told)
        for batch in file.iter_batches(TOGETHER, columns=[column]):
            values = batch.column(top)
            for field in fields:
                values = pa.compute.struct_field(values, field)
            if pa.types.is_dictionary(values.type):
                values = values.dictionary_decode()
            # Nobody checks that what a file calls text is UTF-8.
            yield [_line(value) for value in values.cast(pa.large_binary()).to_pylist()]


def _column(rows: Iterable[list[str]], column: str, told: str) -> Iterator[list[str]]:
    at = width = -1
    found: list[str] = []
    for number, row in enumerate(rows, 1):
        if at < 0:
            at, width = _place(row, column, told), len(row)
            if not column.isdecimal():
                continue
        if not row:  # a blank row of CSV: an empty value where there is one column, nothing where there are more
            if width > 1:
                continue
            row = [""]
        if len(row) != width:
            raise BadData(f"{told} has {len(row)} columns in row {number} and {width} in the first")
        found.append(_LINE_ENDS.sub(" ", row[at]))
        if len(found) == TOGETHER:
            yield found
            found = []
    yield found


def _place(row: list[str], column: str, told: str) -> int:
    if column.isdecimal():
        if not 1 <= int(column) <= len(row):
            raise BadData(f"{told}: the first row has {len(row)} columns")
        return int(column) - 1
    if row.count(column) != 1:
        raise BadData(f"{told}: the first row must name it once, but it is {', '.join(row)[:200]!r}")
    return row.index(column)


def _short_lines(text: io.TextIOWrapper, told: str) -> Iterator[str]:
    while line := text.readline(LONGEST):
        if len(line) == LONGEST and not line.endswith(("\r", "\n")):
            raise BadData(f"{told} has a line of more than {LONGEST:,} characters: that is no text")
        yield line


def _check(kind: Any, fields: list[str], told: str) -> None:
    for field in fields:
        if not pa.types.is_struct(kind) or kind.get_field_index(field) < 0:
            raise BadData(f"{told}: {kind} has no field {field}")
        kind = kind.field(field).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise BadData(f"{told} holds {kind}, not text")


def _line(value: bytes | None) -> str:
    return _LINE_ENDS.sub(" ", (value or b"").decode("utf-8", "replace"))
