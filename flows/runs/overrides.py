"""Apply ``--set training.updates=200`` to a run: typed values, checked by the dataclasses that hold them."""

import logging
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence, Set
from copy import copy
from dataclasses import fields, is_dataclass, replace
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any, get_type_hints

from flows.runs.noised_sets import named_sets
from flows.runs.plain_values import RULE, from_plain, plain
from flows.runs.run import Run, fewest_updates
from flows.runs.unknown_names import unknown_name
from infra.errors import BadConfiguration, bad_values
from tasks.cleaning.filters import Filter
from tasks.corpus.catalogue import EvaluationSet

log = logging.getLogger(__name__)
NAMED: Mapping[str, Mapping[str, Sequence[str]]] = tomllib.loads(Path(__file__).with_name("presets.toml").read_text())
"""The assignments of each ``preset=NAME`` (a published reproduction) and ``profile=NAME`` (of cleaning)."""
ADDED_UP = ("preset", "filters.rules", "sets")
"""Paths whose assignments add up: ``filters.rules=+Length`` changes the present rules."""
STRICT_NUMERICS = ("training.numerics=strict", "decoding.numerics=strict")
"""The assignments of ``--strict-numerics`` (docs/reproducibility.md)."""
RULE_ITEM = re.compile(r"([+-]?)(\w+)(?:\(([^()]*)\))?")
SEPARATOR = " · "
SAME_PATHS = {"training.continue": "training.continue_from"}
"""Paths that users type, and their fields: ``continue`` is a reserved word of Python."""


def override(run: Run, assignments: Sequence[str]) -> Run:
    """Apply each ``path=value`` to ``run``. Raises BadConfiguration with the field, its value and what is allowed.

    A path names fields, and members of tuples by their class: ``filters.rules.LengthRatio.max=1.5``. ``filters.rules``
    also takes a list of rules or of changes to the rules; ``sets`` takes names (``flows.runs.noised_sets``).
    ``preset=NAME`` and ``profile=NAME`` stand for the assignments in ``presets.toml``; other assignments take
    precedence over these. The last of two values for one path counts. Otherwise the order does not matter: checks run
    after all values are set.
    """
    for path, text in _single_fields(assignments):
        with bad_values(f"--set {path}={text}: "):
            run = _with_field(run, path.split("."), text, path)
    assigned = {assignment.partition("=")[0] for assignment in assignments}
    run = _with_saved_averaged(run, assigned)
    with bad_values(f"--set {', '.join(sorted(assignments))}: "):
        checked: Run = _checked(run)
        _check_used(checked, assigned)
    return checked


def _with_saved_averaged(run: Any, assigned: Set[str]) -> Any:
    """Return the unchecked run; it averages fewer checkpoints if the assigned updates save fewer."""
    training = run.training
    count = run.averaging.count
    every = training.checkpoint_every
    if "training.updates" not in assigned or "averaging.count" in assigned or training.updates < 1 or every < 1:
        return run
    saved = -(-fewest_updates(training, training.updates) // every)
    if saved >= count:
        return run
    warn_once(
        f"averaging.count is {saved} in place of {count}: {training.updates} updates save {saved} "
        f"checkpoint{'s' * (saved > 1)}, one every {every} (training.checkpoint_every)"
    )
    return _unchecked(run, averaging=_unchecked(run.averaging, count=saved))


def _single_fields(assignments: Sequence[str]) -> list[tuple[str, str]]:
    """Return (path, text) of single fields: first from presets, then from profiles, then the others sorted by path."""
    pairs = [_split(assignment) for assignment in assignments]
    found: list[tuple[str, str]] = []
    for name, named in NAMED.items():
        for path, text in pairs:
            if path == name and text not in named:
                raise BadConfiguration(f"--set {path}={text}: {name} is {text!r}, allowed is {' or '.join(named)}")
            if path == name:
                found += _single_fields(named[text])
    return found + sorted((pair for pair in pairs if pair[0] not in NAMED), key=itemgetter(0))


def _split(assignment: str) -> tuple[str, str]:
    path, equals, text = assignment.partition("=")
    if not equals or not path:
        raise BadConfiguration(f"--set {assignment}: not of the form field=value, as in training.updates=200")
    return SAME_PATHS.get(path, path), text


def as_options(assignments: Sequence[str]) -> str:
    """Write the assignments as options of a command line, each with a space before it; "" for none."""
    return "".join(f" --set {shlex.quote(assignment)}" for assignment in assignments)


def without_replaced(assignments: Sequence[str]) -> tuple[str, ...]:
    """Remove assignments that a later one for the same path replaces. Presets, rules and sets add up."""
    last: dict[str, str] = {}
    for assignment in assignments:
        path = assignment.partition("=")[0]
        last[assignment if path in ADDED_UP else path] = assignment
    return tuple(last.values())


def _check_used(run: Any, assigned: Set[str]) -> None:
    """Raise ValueError for an assigned ``peak`` or ``factor`` that the learning-rate schedule does not use.

    Unused values of a preset, and of the run itself, are allowed.
    """
    for path, uses_paper, used in (("training.factor", True, "peak"), ("training.peak", False, "factor")):
        if path in assigned and (run.training.schedule == "paper") != uses_paper:
            schedule = run.training.schedule
            raise ValueError(f"{path} is not used where training.schedule is {schedule}; set training.{used} instead")


def value_of(run: Any, path: str, text: str) -> object:
    """Return the value that ``path=text`` gives the field, not checked against other values. Raises ValueError."""
    names = SAME_PATHS.get(path, path).split(".")
    found = _with_field(run, names, text, path)
    for name in names:
        members = {type(member).__name__: member for member in found} if isinstance(found, tuple) else vars(found)
        found = members[name]
    return found


def by_path(assignments: Sequence[str]) -> tuple[str, ...]:
    """Sort the assignments by path, since their order does not matter; those of one path keep theirs, which does."""
    return tuple(sorted(assignments, key=lambda each: each.partition("=")[0]))


def changes_results(assignments: Sequence[str]) -> bool:
    """Whether a run with these assignments may have other results; limits on results do not change them."""
    return any(assignment.partition("=")[0] != "expect" for assignment in assignments)


def _with_field(holder: Any, path: list[str], text: str, whole: str) -> Any:
    """``holder`` with one field changed, unchecked."""
    name = path[0]
    rest = path[1:]
    if isinstance(holder, tuple):
        members = [type(member).__name__ for member in holder]
        if name not in members or not rest:
            raise ValueError(unknown_name(name, members, whole))
        at = members.index(name)
        return (*holder[:at], _with_field(holder[at], rest, text, whole), *holder[at + 1 :])
    names = [field.name for field in fields(holder)]
    if name not in names:
        same = [each for each in field_paths(holder) if name == whole and each.endswith(f".{name}")]
        if likely := sorted(same, key=lambda each: not each.startswith("training.")):
            raise ValueError(f"unknown field {name!r}; did you mean {' or '.join(likely)}?")
        raise ValueError(unknown_name(name, names, whole))
    present = getattr(holder, name)
    if rest:
        if not (is_dataclass(present) or isinstance(present, tuple)):
            raise ValueError(f"{whole}: {name} is a single value and has no field {rest[0]}")
        return _unchecked(holder, **{name: _with_field(present, rest, text, whole)})
    if is_dataclass(present):
        inner = ", ".join(f"{whole}.{field.name}" for field in fields(present))
        raise ValueError(f"{whole} is not a single value; set one of {inner}")
    kind = get_type_hints(type(holder))[name]
    value: Any = text
    if kind == tuple[EvaluationSet, ...]:
        value = named_sets([part.strip() for part in text.split(",") if part.strip()], plain(present, kind))
    value = _rules_from(text, present, whole) if kind == tuple[Filter, ...] else from_plain(kind, value, whole)
    return _unchecked(holder, **{name: value})


def field_paths(holder: Any, prefix: str = "") -> list[str]:
    """The paths that ``--set`` takes for the single values of a dataclass."""
    found = []
    for field in fields(holder):
        value = getattr(holder, field.name)
        path = f"{prefix}{field.name}"
        found += field_paths(value, f"{path}.") if is_dataclass(value) else [path]
    return found


def _rules_from(text: str, present: Sequence[Filter], whole: str) -> tuple[Filter, ...]:
    """Parse rules, or changes to the rules ``present`` of the run.

    Empty,Length(min=2,max=60),NotIn    these rules
    +Distinct(on=source),-Identical     the run's rules, with one more at the end and one fewer
    """
    items = [item.strip() for item in re.findall(r"[^,()]+(?:\([^()]*\))?", text) if item.strip()]
    matches = [RULE_ITEM.fullmatch(item) for item in items]
    changes = any(match and match[1] for match in matches)
    rules = list(present) if changes else []
    for item, match in zip(items, matches, strict=True):
        if match is None or (changes and not match[1]):
            allowed = "Rule,Rule(field=value), or +Rule and -Rule for changes to the run's rules"
            raise ValueError(f"{whole} has {item!r}, allowed is {allowed}")
        name = match[2]
        if match[1] == "-":
            names = [type(rule).__name__ for rule in rules]
            if name not in names:
                raise ValueError(unknown_name(name, names, whole, "rule"))
            del rules[names.index(name)]
        else:
            pairs = (pair.partition("=") for pair in (match[3] or "").split(",") if pair.strip())
            values = {field.strip(): value.strip() for field, _, value in pairs}
            rules.append(from_plain(Filter, {RULE: name, **values}, whole))
    return tuple(rules)


@cache
def warn_once(sentence: str) -> None:
    """Log a warning once per process: a request is resolved several times."""
    log.warning("%s", sentence)


def _unchecked(holder: Any, **values: Any) -> Any:
    """``dataclasses.replace`` without ``__post_init__``: another assignment may make the values fit."""
    changed = copy(holder)
    for name, value in values.items():
        object.__setattr__(changed, name, value)
    return changed


def _checked(value: Any) -> Any:
    """Recreate all dataclasses from the inside out, which runs their checks."""
    if isinstance(value, tuple):
        return tuple(_checked(member) for member in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    return replace(value, **{field.name: _checked(getattr(value, field.name)) for field in fields(value)})


def settings_text(overrides: Sequence[str]) -> str:
    """Describe the overrides, each by the last part of its path: ``p_drop 0.2 · Length.max 70``; "" for none."""
    return SEPARATOR.join(_setting(*each.partition("=")[::2]) for each in overrides)


def run_title(name: str, overrides: Sequence[str]) -> str:
    """Join the run's name and its settings: ``demo · seed 3``; omits a setting that equals the name."""
    settings = settings_text(overrides).split(SEPARATOR)
    return SEPARATOR.join(dict.fromkeys(filter(None, (name, *settings))))


def _setting(path: str, value: str) -> str:
    *parents, last = path.split(".")
    # A filter's class stays in the name: ``filters.rules.Length.max``.
    named = f"{parents[-1]}.{last}" if parents and parents[-1][:1].isupper() else last
    return f"{named} {value}"
