"""Values of fields from text, by the types that dataclasses declare, and sentences about unknown names."""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def parse_value(kind: Any, text: str, whole: str) -> Any:
    """The value of the declared type ``kind`` that ``text`` says; ``whole`` is the field's name in error messages.

    Raises ValueError naming field, value and what is allowed.
    """
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise ValueError(f"{whole} is {text!r}, allowed is {' or '.join(map(str, get_args(kind)))}")
        return text
    if get_origin(kind) in (Union, UnionType):
        raise ValueError(f"{whole} cannot be set on the command line")
    if get_origin(kind) is tuple:
        inner = get_args(kind)[0]
        if is_dataclass(inner) or not isinstance(inner, type):
            raise ValueError(f"{whole} cannot be set as a whole on the command line; write a run of your own for that")
        return tuple(parse_value(inner, part.strip(), whole) for part in text.split(",") if part.strip())
    if kind is bool:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if text.lower() not in words:
            raise ValueError(f"{whole} is {text!r}, allowed is true or false")
        return words[text.lower()]
    if kind in (int, float):
        try:
            return kind(text.replace("_", ""))
        except ValueError:
            raise ValueError(f"{whole} is {text!r}, allowed is a {'whole ' if kind is int else ''}number") from None
    if kind is str:
        return text
    raise ValueError(f"{whole} cannot be set on the command line")


def record(kind: Any, given: Mapping[str, Any], path: str, convert: Callable[[Any, Any, str], Any]) -> Any:
    """A dataclass of these values, each converted to the declared type of its field by ``convert(type, value, path)``.

    Raises ValueError naming a field that does not exist, with its neighbours, or one that is missing.
    """
    known = {field.name: field for field in fields(kind)}
    hints = get_type_hints(kind)
    for name in given:
        if name not in known:
            raise ValueError(unknown_name(name, list(known), path))
    for name, field in known.items():
        if name not in given and field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{path} has no {name}")
    return kind(**{name: convert(hints[name], value, f"{path}.{name}") for name, value in given.items()})


def unknown_name(name: str, known: Sequence[str], whole: str, what: str = "field") -> str:
    """The sentence about an unknown field or rule ``name`` of ``whole``, with its neighbours among ``known``."""
    return f"unknown {what} {name!r} in {whole}{did_you_mean(name, known)} (known: {', '.join(known)})"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean demo?``, or "" if none of ``known`` is near."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else ""
