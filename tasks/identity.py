"""What a stage's result is called: a key from everything that decides it, and nothing else."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from infra.store import Artifact
from model.fields import LATE, UNKEYED

KEY_DIGITS = 20


def canonical(value: Any) -> Any:
    """``value`` as JSON that is equal exactly when it means the same.

    Artifacts count by key, dataclasses by class name and fields; a field made ``late`` counts only when it differs
    from its default, an ``unkeyed`` one never. Raises TypeError for a value that has no such form.
    """
    if isinstance(value, Artifact):
        return {"artifact": value.stage, "key": value.key}
    if is_dataclass(value) and not isinstance(value, type):
        form: dict[str, Any] = {"class": type(value).__name__}
        for field in fields(value):
            content = getattr(value, field.name)
            if field.metadata.get(UNKEYED) or (field.metadata.get(LATE) and content == field.default):
                continue
            form[field.name] = canonical(content)
        return form
    if isinstance(value, Mapping):
        return {str(name): canonical(value[name]) for name in sorted(value)}
    if isinstance(value, list | tuple):
        return [canonical(part) for part in value]
    if isinstance(value, str | bool | int | float):
        return value
    raise TypeError(f"a stage's argument cannot be {type(value).__name__}: {value!r}")


def key_of(stage: str, version: int, arguments: Mapping[str, Any]) -> str:
    """The key of what ``stage`` makes of ``arguments``."""
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


def differences(now: Any, before: Any, at: str = "") -> list[str]:
    """Where two canonical forms differ: ``training.updates: 200 -> 400``. Artifacts differ by their stage's name."""
    if now == before:
        return []
    if isinstance(now, dict) and isinstance(before, dict) and now.get("class") == before.get("class"):
        if "artifact" in now and now["artifact"] == before.get("artifact"):
            return [f"{at}: another {now['artifact']}"]
        found = []
        for name in sorted(now.keys() | before.keys()):
            place = f"{at}.{name}" if at else name
            if name not in before:
                found.append(f"{place}: new, {_short(now[name])}")
            elif name not in now:
                found.append(f"{place}: gone, was {_short(before[name])}")
            else:
                found.extend(differences(now[name], before[name], place))
        return found
    if isinstance(now, list) and isinstance(before, list) and len(now) == len(before):
        both = enumerate(zip(now, before, strict=True))
        return [line for i, (a, b) in both for line in differences(a, b, f"{at}[{i}]")]
    return [f"{at}: {_short(before)} -> {_short(now)}"]


def _short(form: Any) -> str:
    text = form["class"] if isinstance(form, dict) and "class" in form else json.dumps(form, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
