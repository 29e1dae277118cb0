"""Reads translations by another system: one per line, WMT's SGM or XML, or a ``.tsv`` of ids and translations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from infra.errors import BadData
from tasks.corpus.catalogue import TABLES, text_suffix
from tasks.corpus.reading import read_lines


def read_translations(path: Path, ids: Sequence[str], system: str) -> list[str]:
    """The translations of a file: its lines, or the second column of a ``.tsv`` in the order of ``ids``.

    The first column of a ``.tsv`` has ``ids`` or numbers from 1. Raises BadData for a damaged file or other ids.
    """
    if text_suffix(path.name) != ".tsv":
        return read_side(path, "hyp", system)
    rows = list(zip(_column(path, "1"), _column(path, "2"), strict=True))
    if rows and rows[0][0] in ("id", "pair_id"):
        del rows[0]
    given = dict(rows)
    known = ids if given.keys() & {*ids} else [f"{number}" for number in range(1, len(ids) + 1)]
    there = Counter(name for name, _ in rows)
    expected = Counter(known)
    if wrong := [*(there - expected), *(expected - there)]:
        allowed = f"allowed is each of {', '.join(ids[:2])}, …, or of 1 to {len(ids)}, once"
        raise BadData(f"{path.name} has the id {wrong[0]!r} {there[wrong[0]]} times, {allowed}")
    return [given[name] for name in known]


def read_side(path: Path, side: Literal["hyp", "ref"], wanted: str = "") -> list[str]:
    """The lines of a text, or of a side of WMT's XML; ``wanted`` selects one of several systems or translators.

    Raises BadData for a damaged file.
    """
    if text_suffix(path.name) in TABLES:
        ids = " or a .tsv of ids and translations" if side == "hyp" else ""
        raise BadData(f"{path.name} is a table, allowed is text with a sentence on each line, .sgm, .xml{ids}")
    lines = _column(path, "")
    if text_suffix(path.name) != ".xml":
        return lines
    try:
        root = ElementTree.fromstring("\n".join(lines))  # loads nothing, and limits the expansion of entities
    except ElementTree.ParseError as error:
        raise BadData(f"{path.name} is no XML, or cut short or damaged ({error})") from error
    parts = [*root.iter(side)]
    if not parts and any(part.tag in ("src", "ref", "hyp") for part in root.iter()):
        raise BadData(f"{path.name} has no <{side}>")
    found: dict[str, list[str]] = {}
    for part in parts or [root]:  # the older form holds only one side
        texts = ("".join(segment.itertext()) for segment in part.iter("seg"))
        author = part.get("system") or part.get("translator") or ""
        found.setdefault(author, []).extend(" ".join(text.split()) for text in texts)
    if len(found) > 1 and wanted not in found:
        way_out = "name one of them with --name" if side == "hyp" else "save one of them as plain text"
        raise BadData(f"{path.name} has translations by {', '.join(sorted(found))}: {way_out}")
    return found[wanted if wanted in found else next(iter(found))]


def _column(path: Path, column: str) -> list[str]:
    return [line for block in read_lines(path, column=column) for line in block]
