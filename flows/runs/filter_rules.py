"""Rules of ``Filters`` from text: ``--set filters.rules=…`` with a file, a list, or changes to the run's rules.

    filters.rules=rules.toml                              the rules of a file, in its order
    filters.rules=Empty,Length(min=2,max=60),NotIn        these rules
    filters.rules=+NumbersDiffer,-Identical               the run's rules, with one more at the end and one fewer

A file holds a table ``[[rules]]`` for each rule: ``rule`` is the name of its class, other entries are its fields.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_type_hints

from flows.runs.values import parse_value, unknown_name
from tasks.cleaning import filters, language_id, web_filters
from tasks.cleaning.filters import Filter

RULES: Mapping[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(filters.Empty, filters.InvalidUnicode, filters.NoLetters, filters.Length, filters.LengthRatio),
        *(filters.OverlongWord, filters.Identical, filters.Script, filters.Language, filters.NotIn, filters.Distinct),
        *(language_id.Identified, web_filters.Moses, web_filters.RepeatedWords, web_filters.NumbersDiffer),
        *(web_filters.AddressesDiffer, web_filters.Markup, web_filters.Alphabet, web_filters.ManyPartners),
    )
}
"""Every rule by the name of its class."""
ITEM = re.compile(r"([+-]?)(\w+)(?:\(([^()]*)\))?")


def parse_rules(text: str, present: Sequence[Filter], whole: str) -> tuple[Filter, ...]:
    """The rules that ``text`` says, where the run has ``present``; ``whole`` is the field's name in error messages.

    Raises ValueError naming a rule or field that does not exist, with its neighbours, or a file that cannot be read.
    """
    if text.endswith(".toml"):
        return _read_rules(Path(text))
    items = re.findall(r"[^,()]+(?:\([^()]*\))?", text)
    rules = [(item, ITEM.fullmatch(item.strip())) for item in items if item.strip()]
    made: list[Filter] = []
    changes = [found[1] for _, found in rules if found]
    if any(changes):
        made = list(present)
    for item, found in rules:
        if found is None or (any(changes) and not found[1]):
            allowed = "a file.toml, Rule,Rule(field=value), or +Rule and -Rule for changes to the run's rules"
            raise ValueError(f"{whole} has {item.strip()!r}, allowed is {allowed}")
        sign = found[1]
        name = found[2]
        given = found[3] or ""
        if sign == "-":
            names = [type(rule).__name__ for rule in made]
            if name not in names:
                raise ValueError(unknown_name(name, names, whole, "rule"))
            del made[names.index(name)]
            continue
        pairs = [pair.partition("=") for pair in given.split(",") if pair.strip()]
        made.append(_rule(name, {field.strip(): value.strip() for field, _, value in pairs}, whole))
    return tuple(made)


def _read_rules(path: Path) -> tuple[Filter, ...]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as TOML: {error}") from error
    for name in found:
        if name != "rules":
            raise ValueError(unknown_name(name, ["rules"], f"{path}", "table"))
    tables = found.get("rules", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) and "rule" in table for table in tables):
        raise ValueError(f'{path} has {_short(tables)}, allowed is [[rules]] for each rule, with rule = "its name"')
    made = []
    for table in tables:
        values = {name: value for name, value in table.items() if name != "rule"}
        made.append(_rule(f"{table['rule']}", {name: f"{value}" for name, value in values.items()}, f"{path}"))
    return tuple(made)


def _rule(name: str, values: Mapping[str, str], whole: str) -> Filter:
    """The rule of this name with these fields, from text."""
    if name not in RULES:
        raise ValueError(unknown_name(name, list(RULES), whole, "rule"))
    kind = RULES[name]
    known = {field.name: field for field in fields(kind)}
    hints = get_type_hints(kind)
    for field in values:
        if field not in known:
            raise ValueError(unknown_name(field, list(known), f"{whole}: {name}"))
    for field, declared in known.items():
        if declared.default is MISSING and field not in values:
            raise ValueError(f"{whole}: {name} has no {field}, allowed is {name}({field}=…)")
    rule: Filter = kind(**{field: parse_value(hints[field], text, f"{name}.{field}") for field, text in values.items()})
    return rule


def _short(value: object) -> str:
    text = f"{value}"
    return text if len(text) <= 60 else text[:57] + "..."
