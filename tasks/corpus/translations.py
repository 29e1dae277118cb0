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


def read_side(path: Path, side: Literal["hyp", "ref", "src"] = "hyp", wanted: str = "") -> list[str]:
    """The lines of a file in any of these formats; those of a table with their ids (``in_set_order``).

    Of XML with several systems or translators it is the side of ``wanted``. Raises BadData for a damaged file.
    """
    lines = [line for block in read_lines(path) for line in block]
    begin = next(filter(None, map(str.strip, lines)), "").lower()
    if not begin.startswith(XML):
        return next(iter(segments([lines], path.name))) if begin.startswith(SGM) else lines
    try:
        root = ElementTree.fromstring("\n".join(lines))  # loads nothing, and limits the expansion of entities
    except ElementTree.ParseError as error:
        raise BadData(f"{path.name} is no XML, or cut short or damaged ({error})") from error
    found: dict[str, list[str]] = {}
    for part in [*root.iter(side)] or [root]:  # the older form holds one side alone
        texts = ("".join(segment.itertext()) for segment in part.iter("seg"))
        found.setdefault(part.get("system") or part.get("translator") or "", []).extend(map(_one_line, texts))
    if len(found) > 1 and wanted not in found:
        raise BadData(f"{path.name} has translations by {', '.join(sorted(found))}: name one of them with --name")
    return found.get(wanted) or next(iter(found.values()))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def in_set_order(lines: Sequence[str], ids: Sequence[str], label: str) -> list[str]:
    """The translations of a set in its order: the lines, or the second column of a table with the ids of the set.

    Ids are the set's own (``test:17``), or numbers from 0 or from 1; ``label`` names the lines, and a table if it ends
    in ``.tsv``. Raises BadData where lines or ids are not those of the set.
    """
    first, tab, _ = lines[0].partition("\t") if lines else ("", "", "")
    head = first in HEADS
    if text_suffix(label) != ".tsv" and not (tab and (head or first.isdecimal() or first in ids)):
        if len(lines) != len(ids):
            raise BadData(f"{label} has {len(lines):,} lines, allowed is one for each of the set's {len(ids):,} pairs")
        return [*lines]
    rows = [line.split("\t") for line in lines[head:]]
    if wrong := next((number for number, row in enumerate(rows, 1 + head) if len(row) != 2), 0):
        raise BadData(f"{label} has not two columns in line {wrong}, allowed is ID, a tab, TRANSLATION")
    given = dict(rows)
    numbers = ([f"{n + begin}" for n in range(len(ids))] for begin in (0, 1))
    known = max((ids, *numbers), key=lambda names: len(given.keys() & {*names}))
    if unknown := [name for name in given if name not in {*known}]:
        raise BadData(f"{label} has the id {unknown[0]!r}, allowed is {ids[0]} to {ids[-1]}, or 1 to {len(ids)}")
    counts = Counter(row[0] for row in rows)
    if wrong_ids := [name for name in known if counts[name] != 1]:
        times = "twice or more" if counts[wrong_ids[0]] else "not"
        raise BadData(f"{label} has {len(wrong_ids):,} of {len(ids):,} ids not once; {wrong_ids[0]!r} is there {times}")
    return [given[name] for name in known]
