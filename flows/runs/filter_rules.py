"""Rules of ``Filters`` from text: ``--set filters.rules=…`` with a list, or changes to the run's rules.

filters.rules=Empty,Length(min=2,max=60),NotIn        these rules
filters.rules=+NumbersDiffer,-Identical               the run's rules, with one more at the end and one fewer
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from flows.runs.values import parse_value, record, unknown_name
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

    Raises ValueError naming a rule or field that does not exist, with its neighbours.
    """
    items = re.findall(r"[^,()]+(?:\([^()]*\))?", text)
    rules = [(item, ITEM.fullmatch(item.strip())) for item in items if item.strip()]
    made: list[Filter] = []
    changes = [found[1] for _, found in rules if found]
    if any(changes):
        made = list(present)
    for item, found in rules:
        if found is None or (any(changes) and not found[1]):
            allowed = "Rule,Rule(field=value), or +Rule and -Rule for changes to the run's rules"
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


def _rule(name: str, values: Mapping[str, str], whole: str) -> Filter:
    """The rule of this name with these fields, from text."""
    if name not in RULES:
        raise ValueError(unknown_name(name, list(RULES), whole, "rule"))
    rule: Filter = record(RULES[name], values, name, parse_value)
    return rule
