"""Runs in TOML: ``repro run my-run.toml``, ``repro show demo``.

    extends = "multi30k-ende"      # every field that this file does not have
    [training]
    updates = 9_000

The run has the name of the file, unless ``name`` is set. A relative ``url`` of a text file is a path below the folder
of the TOML file. Lists, such as ``sets`` and ``filters.rules``, replace those of the other run. A name in ``sets``
means a set of the other run, perhaps with noise: ``sets = ["val", "val+caps"]``.
"""

import json
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

from flows.runs.noised_sets import named_sets
from flows.runs.plain_values import COMPACT, KIND, RULE, RULES, difference, from_plain, merged, plain
from flows.runs.reversal import SWAPPED, swapped_run
from flows.runs.run import Run
from infra.errors import BadConfiguration, bad_values
from tasks.corpus.catalogue import EMBEDDED

SUFFIX = ".toml"
EXTENDS = "extends"


def run_from_toml(path: Path, find: Callable[[str], Run], extended_by: tuple[Path, ...] = ()) -> Run:
    """Read the run in a file; ``find`` returns the run that ``extends`` names if it is not a file.

    ``extended_by`` are the files that extend this one. Raises BadConfiguration with the file, the field, its value and
    what is allowed.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        others = "`repro new` writes such a file, `repro show` lists built-in runs"
        raise BadConfiguration(f"{path} cannot be read: {error.strerror}; {others}") from error
    except ValueError as error:  # UnicodeDecodeError is one
        raise BadConfiguration(f"{path} is not TOML: {error}") from error
    _locate(table, path.parent)
    base = table.pop(EXTENDS, "")
    named: dict[str, Any] = {"name": path.stem, "about": f"the run of {path.name}"}
    if base:
        if not isinstance(base, str):
            raise BadConfiguration(f"{path}: {EXTENDS} is {base!r}, allowed is the name of a run")
        own = base.removesuffix(SWAPPED)
        if own.endswith(SUFFIX):
            file = path.parent / own
            above = (*extended_by, path.resolve())
            if file.resolve() in above:
                allowed = "which is this file or extends it; allowed is another run"
                raise BadConfiguration(f"{path}: {EXTENDS} is {base!r}, {allowed}")
            extended = run_from_toml(file, find, above)
            extended = extended if own == base else swapped_run(extended)
        else:
            extended = find(f"{path.parent / base}" if ".py:" in base else base)
        named = plain(extended) | named
    with bad_values(f"{path}: "):
        if isinstance(table.get("sets"), list):
            table["sets"] = named_sets(table["sets"], named.get("sets", []))
        run: Run = from_plain(Run, merged(named, table), "run")
    return run


def toml_of(run: Run, base: Run | None = None, base_name: str = "") -> str:
    """Write the run as TOML, with comments on its fields: all of them, or only those that differ from ``base``."""
    table = plain(run)
    head = ""
    if base:
        table = {"name": run.name, "about": run.about} | difference(plain(base), table)
        head = f"{EXTENDS} = {json.dumps(base_name or base.name)}\n"
    return head + "\n".join(_lines(table, Run, "")).strip("\n") + "\n"


def _locate(value: Any, folder: Path) -> None:
    """Make the relative urls in ``value`` paths below ``folder``."""
    if isinstance(value, list):
        for each in value:
            _locate(each, folder)
    elif isinstance(value, dict):
        url = value.get("url")
        if isinstance(url, str) and url and "://" not in url and not url.startswith(EMBEDDED):
            value["url"] = str(folder.absolute() / url)
        for each in value.values():
            _locate(each, folder)


def _lines(table: Mapping[str, Any], kind: type | None, path: str) -> Iterator[str]:
    """Yield the lines of a table: values first, then inner tables."""
    documented, hints = (field_documentation(kind), get_type_hints(kind)) if kind else ({}, {})
    inner = {name: value for name, value in table.items() if _is_table(value, hints.get(name))}
    for name, value in table.items():
        if name not in inner:
            yield from _comment(documented.get(name, ""))
            yield f"{name} = {_value(value)}"
    for name, value in inner.items():
        whole = f"{path}.{name}".removeprefix(".")
        yield from ["", *_comment(documented.get(name, ""))]
        for n, member in enumerate(value if isinstance(value, list) else [value]):
            yield from [""] * (n > 0)
            yield f"[[{whole}]]" if isinstance(value, list) else f"[{whole}]"
            yield from _lines(member, _class_of(hints.get(name), member), whole)


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text.replace("``", ""), 110)]


def _is_table(value: Any, kind: Any) -> bool:
    """Whether the value is written as a table of its own; texts and files are written in one line."""
    if isinstance(value, list):
        return bool(value) and isinstance(value[0], dict)
    return isinstance(value, dict) and kind not in COMPACT


def _class_of(kind: Any, member: Mapping[str, Any]) -> type | None:
    """Find the class of a field's value, to look up its documentation."""
    if RULE in member:
        return RULES[member[RULE]]
    kinds = [each for each in (kind, *get_args(kind)) if isinstance(each, type) and is_dataclass(each)]
    named = [each for each in kinds if each.__name__ == member.get(KIND)]
    return next(iter(named or kinds), None)


@cache
def field_documentation(kind: Any) -> dict[str, str]:
    """Read the text below each field in the source of a configuration class."""
    import ast
    import inspect

    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for declared, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(declared, ast.AnnAssign) and isinstance(declared.target, ast.Name):
            text = below.value if isinstance(below, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                found[declared.target.id] = " ".join(text.value.split())
    return {field.name: found[field.name] for field in fields(kind) if field.name in found}


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_value(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)  # true, false, whole numbers; 1e-09 and 6.0 are TOML's floats too
