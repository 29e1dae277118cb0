"""Reads a field of JSON Lines: one object on each line, ``{"translation": {"en": "A dog.", "de": "Ein Hund."}}``.

A field is named by its key, or by a path through nested objects: ``translation.en``. Empty lines are skipped. A null
gives an empty line, as in Parquet; line ends inside a value become spaces.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from infra.errors import BadData
from tasks.corpus.table_columns import one_line
from tasks.lazy_libraries import pl

FIRST_LINES = 5
"""Lines with text that decide whether a plain text is JSON Lines. A real text may have a line that is an object."""


def values(blocks: Iterable[list[str]], column: str, label: str) -> Iterator[list[str]]:
    """The field of each object. Raises BadData with the line that is no object, lacks the field or has no text."""
    numbers = count(1)
    for block in blocks:
        rows = zip(block, numbers, strict=False)
        yield [_value(line, column, f"{label}, line {number}") for line, number in rows if line.strip()]


def refuse(blocks: Iterable[pl.Series], label: str, formats: str) -> Iterator[pl.Series]:
    """The blocks of a plain text. Raises BadData, which names ``formats``, if its first lines are JSON objects."""
    for number, block in enumerate(blocks):
        begin = [line for line in block.head(10 * FIRST_LINES) if line.strip()][:FIRST_LINES] if number == 0 else []
        if begin and all(map(_object, begin)):
            raise BadData(f"{label} has a JSON object on each line, allowed is {formats}: name it .jsonl")
        yield block


def _object(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line) if line.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _value(line: str, column: str, label: str) -> str:
    found: Any = _object(line)
    if found is None:
        raise BadData(f"{label} is {line[:60]!r}, allowed is a JSON object")
    for key in [column] if column in found else column.split("."):
        if not isinstance(found, dict) or key not in found:
            has = ", ".join(found)[:200] if isinstance(found, dict) else type(found).__name__
            raise BadData(f"{label} has no field {key!r}; it has {has or 'none'}")
        found = found[key]
    if not isinstance(found, str | None):
        inner = next(iter(found), "") if isinstance(found, dict) else ""
        hint = f"; name the field inside it, such as {column}.{inner}" if inner else ""
        raise BadData(f"{label} has {json.dumps(found)[:60]}, allowed is text{hint}")
    # An escape may be half of a character: "\\ud83d".
    return one_line((found or "").encode("utf-8", "surrogatepass"))
