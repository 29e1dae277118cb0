"""The key of an artifact: a hash of the stage's name, version and arguments, which decide its content."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from infra.store.store import Artifact
from model.config.keying import UNKEYED, UNKEYED_DEFAULT
from tasks.engine.own_classes import own_code

KEY_DIGITS = 20


def canonical(value: Any, kinds: tuple[Any, ...] = ()) -> Any:
    """Convert ``value`` to JSON; two values have equal JSON if and only if they mean the same.

    An artifact becomes its key. A dataclass becomes its class name and fields, a user's dataclass also its code. A
    field declared with ``unkeyed_default`` is included only if it differs from its default; an ``unkeyed`` field is
    never included. A number in a dataclass takes the declared type of its field, so that ``alpha=2`` equals
    ``alpha=2.0``. ``kinds`` are the types declared for ``value``, empty if none is declared.
    Raises TypeError for a value of another type.
    """
    if isinstance(value, Artifact):
        return {"artifact": value.stage, "key": value.key}
    if is_dataclass(value) and not isinstance(value, type):
        form: dict[str, Any] = {"class": type(value).__name__}
        if code := own_code(type(value)):
            form["code"] = code
        declared = _declared(type(value))
        for field in fields(value):
            content = getattr(value, field.name)
            if field.metadata.get(UNKEYED) or (field.metadata.get(UNKEYED_DEFAULT) and content == field.default):
                continue
            form[field.name] = canonical(content, declared.get(field.name, ()))
        return form
    if isinstance(value, Mapping):
        return {str(name): canonical(value[name], _of_values(kinds)) for name in sorted(value)}
    if isinstance(value, list | tuple):
        return [canonical(part, _of_element(kinds, index)) for index, part in enumerate(value)]
    if isinstance(value, bool | int | float):
        return _number(value, kinds)
    if isinstance(value, str) or (value is None and NoneType in kinds):
        return value
    raise TypeError(f"a stage's argument cannot be {type(value).__name__}: {value!r}")


def _number(value: float, kinds: tuple[Any, ...]) -> float:
    """Convert ``value`` to the widest of its declared types that can hold it; unchanged if none is declared."""
    for kind in (float, int, bool):
        if kind in kinds:
            with suppress(OverflowError, ValueError):  # an int too large for a float; an infinity or NaN as an int
                if kind(value) == value:
                    return kind(value) or kind(0)  # not -0.0, which equals 0.0
    literals = (member for kind in kinds if get_origin(kind) is Literal for member in get_args(kind))
    return next((member for member in literals if member == value), value)


@cache
def _declared(kind: type) -> dict[str, tuple[Any, ...]]:
    """The types declared for each field of a dataclass; empty if a declaration has an unknown name."""
    with suppress(NameError):
        return {name: _members(hint) for name, hint in get_type_hints(kind).items()}
    return {}


def _members(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a declaration: two for ``float | None``."""
    if get_origin(hint) in (Union, UnionType):
        return tuple(member for part in get_args(hint) for member in _members(part))
    return (hint,)


def _of_values(kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    """The types declared for a mapping's values."""
    mappings = (kind for kind in kinds if _is_generic(kind, Mapping))
    return tuple(member for kind in mappings for member in _members(get_args(kind)[1]))


def _of_element(kinds: tuple[Any, ...], index: int) -> tuple[Any, ...]:
    """The types declared for element ``index`` of a sequence."""
    found: list[Any] = []
    for kind in kinds:
        if not _is_generic(kind, Sequence):
            continue
        parts = get_args(kind)
        if get_origin(kind) is not tuple or parts[-1] is Ellipsis:
            found.extend(_members(parts[0]))
        elif index < len(parts):
            found.extend(_members(parts[index]))
    return tuple(found)


def _is_generic(kind: Any, container: type) -> bool:
    origin = get_origin(kind)
    return isinstance(origin, type) and issubclass(origin, container) and bool(get_args(kind))


def artifact_key(stage: str, version: int, arguments: Mapping[str, Any]) -> str:
    """The key of the artifact that ``stage`` makes from ``arguments``."""
    text = json.dumps([stage, version, canonical(arguments)], sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]


def artifacts_in(value: Any) -> Iterator[Artifact]:
    """Every artifact among the arguments, in a stable order."""
    if isinstance(value, Artifact):
        yield value
    elif isinstance(value, Mapping):
        for name in sorted(value):
            yield from artifacts_in(value[name])
    elif isinstance(value, list | tuple):
        for part in value:
            yield from artifacts_in(part)


def differences(now: Any, before: Any, path: str = "") -> list[str]:
    """The differences between two canonical forms: ``training.updates: 200 -> 400``, ``trained: another train``."""
    if now == before:
        return []
    if isinstance(now, dict) and isinstance(before, dict) and now.get("class") == before.get("class"):
        if "artifact" in now and now["artifact"] == before.get("artifact"):
            return [f"{path}: another {now['artifact']}"]
        lines = []
        for name in sorted(now.keys() | before.keys()):
            field_path = f"{path}.{name}" if path else name
            if name not in before:
                lines.append(f"{field_path}: new, {_abbreviated(now[name])}")
            elif name not in now:
                lines.append(f"{field_path}: gone, was {_abbreviated(before[name])}")
            else:
                lines.extend(differences(now[name], before[name], field_path))
        return lines
    if isinstance(now, list) and isinstance(before, list) and len(now) == len(before):
        both = enumerate(zip(now, before, strict=True))
        return [line for i, (a, b) in both for line in differences(a, b, f"{path}[{i}]")]
    if isinstance(now, list) and isinstance(before, list):
        lines = [f"{path}: new, {_abbreviated(each)}" for each in now if each not in before]
        lines += [f"{path}: gone, was {_abbreviated(each)}" for each in before if each not in now]
        return lines or [f"{path}: {len(before)} -> {len(now)} entries"]
    return [f"{path}: {_abbreviated(before)} -> {_abbreviated(now)}"]


def _abbreviated(form: Any) -> str:
    kind = (form.get("class") or form.get("artifact")) if isinstance(form, dict) else ""
    text = f"{kind} {form.get('name', '')}".rstrip() if kind else json.dumps(form, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
