"""Evaluation sets by name: ``--set sets=+test+caps``, and ``sets = ["val", "test", "test+caps"]`` in TOML."""

from collections.abc import Mapping, Sequence
from typing import Any

from flows.runs.unknown_names import unknown_name
from tasks.corpus.catalogue import NOISE


def named_sets(members: Sequence[Any], known: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return ``sets`` as tables: a name becomes the table of its set in ``known`` or ``members``, with its noise.

    ``+test+caps`` adds a set to the known ones. Raises ValueError for an unknown name.
    """
    adds = any(isinstance(name, str) and name.startswith(NOISE) for name in members)
    tables = {each["name"]: each for each in (*known, *members) if isinstance(each, dict) and "name" in each}
    found = [_table(each.removeprefix(NOISE), tables) if isinstance(each, str) else each for each in members]
    return [*known, *found] if adds else found


def _table(name: str, tables: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    clean = name.partition(NOISE)[0]
    if clean not in tables:
        raise ValueError(unknown_name(clean, list(tables), "sets", "set"))
    return tables.get(name) or {**tables[clean], "name": name}
