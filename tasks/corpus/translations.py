"""Reads translations that something else made: a line each, WMT's SGM or XML, or two columns, ids and translations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from infra.errors import BadData
from tasks.corpus.catalogue import text_suffix
from tasks.corpus.plain import segments
from tasks.corpus.reading import read_lines

XML = ("<?xml", "<dataset")
SGM = ("<!doctype", "<refset", "<tstset", "<srcset", "<doc")
"""How such files begin, as a stream without a name may."""
HEADS = ("id", "pair_id")
ROW = "ID, a tab, TRANSLATION"


def read_side(path: Path, side: Literal["hyp", "ref", "src"] = "hyp", wanted: str = "") -> list[str]:
    """The lines of a file in any of these formats; those of a table with their ids (``in_set_order``).

    Of XML with several systems or translators it is the side of ``wanted``. Raises BadData for a damaged file.
    """
    lines = [line for block in read_lines(path) for line in block]
    begin = next(filter(None, map(str.strip, lines)), "").lower()
    if begin.startswith(XML):
        return _of_xml("\n".join(lines), side, wanted, path.name)
    return next(iter(segments([lines], path.name))) if begin.startswith(SGM) else lines


def _of_xml(text: str, side: str, wanted: str, label: str) -> list[str]:
    try:
        root = ElementTree.fromstring(text)  # loads nothing, and its parser limits the expansion of entities
    except ElementTree.ParseError as error:
        raise BadData(f"{label} is no XML, or cut short or damaged ({error})") from error
    found: dict[str, list[str]] = {}
    for part in root.iter(side):
        who = part.get("system") or part.get("translator") or ""
        found.setdefault(who, []).extend(map(_text, part.iter("seg")))
    found = found or {"": [*map(_text, root.iter("seg"))]}  # the older form, with one system a file
    if len(found) > 1 and wanted not in found:
        raise BadData(f"{label} has translations by {', '.join(sorted(found))}: name one of them with --name")
    return found[wanted] if wanted in found else next(iter(found.values()))


def _text(segment: ElementTree.Element) -> str:
    return " ".join("".join(segment.itertext()).split())


def in_set_order(lines: Sequence[str], ids: Sequence[str], label: str) -> list[str]:
    """The translations of a set in its order: the lines, or the second column of a table with the ids of the set.

    Ids are the set's own (``test:17``), or numbers from 0 or from 1; ``label`` names the lines, and a table if it ends
    in ``.tsv``. Raises BadData where lines or ids are not those of the set.
    """
    first, tab, _ = lines[0].partition("\t") if lines else ("", "", "")
    has_head = first in HEADS
    if text_suffix(label) != ".tsv" and not (tab and (has_head or first.isdecimal() or first in ids)):
        if len(lines) != len(ids):
            raise BadData(f"{label} has {len(lines):,} lines, allowed is one for each of the set's {len(ids):,} pairs")
        return [*lines]
    rows = [line.split("\t") for line in lines[has_head:]]
    if wrong := next((number for number, row in enumerate(rows, 1 + has_head) if len(row) != 2), 0):
        raise BadData(f"{label} has not two columns in line {wrong}, allowed is {ROW}")
    given = dict(rows)
    if len(given) < len(rows):
        twice, _ = Counter(row[0] for row in rows).most_common(1)[0]
        raise BadData(f"{label} has the id {twice!r} twice, allowed is one line for each pair")
    numbers = ([f"{n + begin}" for n in range(len(ids))] for begin in (0, 1))
    known = max((ids, *numbers), key=lambda names: len(given.keys() & {*names}))
    unknown = [name for name in given if name not in {*known}]
    missing = [name for name in known if name not in given]
    if unknown:
        raise BadData(f"{label} has the id {unknown[0]!r}, allowed is {ids[0]} to {ids[-1]}, or 1 to {len(ids)}")
    if missing:
        raise BadData(f"{label} lacks {len(missing):,} of the set's {len(ids):,} pairs, the first is {missing[0]}")
    return [given[name] for name in known]
