"""Converts runs to plain values (tables, lists, text, numbers), as in TOML and ``--set``, and back.

``plain(run)`` has all fields; ``from_plain(Run, plain(run), "run")`` is the run again. A rule names its class in
``rule``; a value that may have several classes names its class in ``kind``; ``"none"`` means None.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from flows.runs.unknown_names import unknown_name
from infra.errors import BadConfiguration
from tasks.cleaning import filters, language_filters
from tasks.cleaning.filters import Filter
from tasks.corpus.catalogue import File, Text

RULES: Mapping[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(filters.Empty, filters.InvalidUnicode, filters.NoLetters, filters.Length, filters.LengthRatio),
        *(filters.OverlongWord, filters.Identical, filters.Script, filters.NotIn, filters.Distinct),
        *(language_filters.Language, language_filters.Swapped),
    )
}
"""Every rule by the name of its class."""
TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
RULE = "rule"
KIND = "kind"
NONE = "none"
COMPACT = (File, Text)
"""Classes that are written without fields that have their default value."""


def plain(value: Any, kind: Any = None) -> Any:
    """Convert a configuration to plain values; ``kind`` is the declared type of its field.

    Raises BadConfiguration for a rule of the user's own class, which only Python can name.
    """
    if value is None:
        return NONE
    if isinstance(value, tuple):
        inner = get_args(kind)[0] if kind else None
        return [plain(member, inner) for member in value]
    if not is_dataclass(value):
        return value
    hints = get_type_hints(type(value))
    table: dict[str, Any] = {}
    if kind is Filter:
        name = type(value).__name__
        if RULES.get(name) is not type(value):
            raise BadConfiguration(f"filters.rules has {name}, a class of your own: only a run in Python can have it")
        table[RULE] = name
    elif len(_classes(kind)) > 1:
        table[KIND] = type(value).__name__
    for field in fields(value):
        present = getattr(value, field.name)
        if not (isinstance(value, COMPACT) and present == field.default):
            table[field.name] = plain(present, hints[field.name])
    return table


def from_plain(kind: Any, value: Any, path: str) -> Any:
    """Convert a plain value to the declared type ``kind``; ``path`` is its name in error messages.

    Text may hold a number, true or false, or a list with commas, as in ``--set``. Raises ValueError with the field, its
    value and what is allowed.
    """
    if value == NONE and NoneType in get_args(kind):
        return None
    if kind is Filter:
        return _member(RULES, value, path, RULE)
    classes = _classes(kind)
    if len(classes) > 1:
        return _member({each.__name__: each for each in classes}, value, path, KIND)
    if classes:
        return _record(classes[0], value, path)
    if get_origin(kind) is tuple:
        members = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
        if not isinstance(members, list):
            raise ValueError(f"{path} is {_short(value)}, allowed is a list in square brackets")
        return tuple(from_plain(get_args(kind)[0], each, f"{path}.{n}") for n, each in enumerate(members, 1))
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ValueError(f"{path} is {_short(value)}, allowed is {' or '.join(map(str, get_args(kind)))}")
        return value
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text in quotation marks"}
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and kind is bool and value.lower() in TRUTH:
        return TRUTH[value.lower()]
    if isinstance(value, str) and kind in (int, float):
        with suppress(ValueError):
            return kind(value)
    raise ValueError(f"{path} is {_short(value)}, allowed is {words.get(kind, kind)}")


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Replace values of ``below`` by those of ``above``, table by table; a list is replaced as a whole."""
    found = dict(below)
    for name, value in above.items():
        inner = found.get(name)
        if isinstance(inner, dict) and isinstance(value, dict):
            # A value of another class keeps no field.
            value = merged(inner if value.get(KIND) in (None, inner.get(KIND)) else {}, value)
        found[name] = value
    return found


def difference(base: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the smallest table ``above`` for which ``merged(base, above)`` is ``table``."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        before = base.get(name)
        if isinstance(value, dict) and isinstance(before, dict) and before.get(KIND) == value.get(KIND):
            if inner := difference(before, value):
                found[name] = inner
        elif value != before:
            found[name] = value
    return found


def _classes(kind: Any) -> list[type]:
    """List the dataclasses that a field of this type can hold."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return [each for each in kinds if isinstance(each, type) and is_dataclass(each)]


def _member(known: Mapping[str, type], value: Any, path: str, by: str) -> Any:
    """Make a value of the class that the entry ``by`` names."""
    name = value.get(by) if isinstance(value, dict) else None
    if not isinstance(name, str):
        raise ValueError(f"{path} is {_short(value)}, allowed is a table with {by}, one of {', '.join(known)}")
    if name not in known:
        raise ValueError(unknown_name(name, list(known), path, by))
    return _record(known[name], {key: each for key, each in value.items() if key != by}, f"{path}.{name}")


def _record(kind: Any, value: Any, path: str) -> Any:
    """Make a dataclass from a table. Raises ValueError that names an unknown or missing field."""
    if not isinstance(value, dict):
        raise ValueError(f"{path} is {_short(value)}, allowed is a table")
    known = {field.name: field for field in fields(kind)}
    for name in value:
        if name not in known:
            raise ValueError(unknown_name(name, list(known), path))
    for name, field in known.items():
        if name not in value and field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{path} has no {name}")
    hints = get_type_hints(kind)
    return kind(**{name: from_plain(hints[name], inner, f"{path}.{name}") for name, inner in value.items()})


def _short(value: object) -> str:
    text = f"{value!r}"
    return text if len(text) <= 60 else text[:57] + "..."
