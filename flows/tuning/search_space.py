"""Parses the search space of a sweep: ``training.peak=1e-3..1e-2:log``, ``model.p_drop=0.1,0.2,0.3``."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from flows.runs import Run
from flows.runs.overrides import SAME_PATHS, value_of
from infra.errors import BadConfiguration, bad_values

if TYPE_CHECKING:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    Distribution = CategoricalDistribution | FloatDistribution | IntDistribution

Direction = Literal["minimize", "maximize"]
"""Whether lower or higher scores are better."""
FORMS = "FIELD=LOW..HIGH, FIELD=LOW..HIGH:log or FIELD=A,B,C, as in training.peak=1e-3..1e-2:log"


def parse_space(texts: Sequence[str], run: Run, overrides: Sequence[str] = ()) -> "dict[str, Distribution]":
    """Convert the values of ``--space`` options to Optuna's distributions, by field.

    Raises BadConfiguration for a text or a field that does not fit.
    """
    if not texts:
        raise BadConfiguration(f"--space is missing: give at least one of the form {FORMS}")
    fixed = [SAME_PATHS.get(path, path) for path in (each.partition("=")[0] for each in overrides)]
    space: dict[str, Distribution] = {}
    for text in texts:
        path, equals, values = text.partition("=")
        if not (path and equals and values):
            raise BadConfiguration(f"--space {text}: not of the form {FORMS}")
        if path in space:
            raise BadConfiguration(f"--space names {path} twice; give each field one range or one list of values")
        if SAME_PATHS.get(path, path) in fixed:
            raise BadConfiguration(f"{path} is searched by --space and fixed by --set; remove one of them")
        space[path] = _range(text, path, values, run) if ".." in values else _choices(text, path, values, run)
    return space


def _choices(text: str, path: str, values: str, run: Run) -> "CategoricalDistribution":
    from optuna.distributions import CategoricalDistribution

    choices = tuple(dict.fromkeys(part.strip() for part in values.split(",") if part.strip()))
    if len(choices) < 2:
        raise BadConfiguration(f"--space {text}: a search needs two or more values; fix one value with --set")
    for choice in choices:
        _read(run, path, choice)
    return CategoricalDistribution(choices)


def _range(text: str, path: str, values: str, run: Run) -> "FloatDistribution | IntDistribution":
    from optuna.distributions import FloatDistribution, IntDistribution

    span, _, scale = values.partition(":")
    if scale not in ("", "log"):
        raise BadConfiguration(f"--space {text}: the scale is {scale!r}, allowed is log or none")
    low, high = (_read(run, path, end) for end in span.split("..", 1))
    if isinstance(low, bool) or not isinstance(low, int | float) or not isinstance(high, int | float):
        raise BadConfiguration(f"--space {text}: {path} is no number; give its values as {path}=A,B,C")
    if not -math.inf < low < high < math.inf or (scale and low <= 0):
        raise BadConfiguration(f"--space {text}: allowed is a finite low end below the high end, above 0 with :log")
    if isinstance(low, int) and isinstance(high, int):
        return IntDistribution(low, high, log=bool(scale))
    return FloatDistribution(low, high, log=bool(scale))


def _read(run: Run, path: str, text: str) -> object:
    with bad_values(f"--space {path}: "):
        return value_of(run, path, text)
