"""The search space of a sweep: ``training.peak=1e-3..1e-2:log``, ``model.p_drop=0.1,0.2,0.3``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from flows.runs import Run
from flows.runs.overrides import value_of
from infra.errors import BadConfiguration

if TYPE_CHECKING:
    from optuna.trial import Trial

Direction = Literal["minimize", "maximize"]
"""Which scores are better: lower or higher ones."""
SIGNIFICANT_DIGITS = 4
"""Of a proposed number: enough for a setting, and short enough to type again."""
FORMS = "FIELD=LOW..HIGH, FIELD=LOW..HIGH:log or FIELD=A,B,C, as in training.peak=1e-3..1e-2:log"


@dataclass(frozen=True)
class Dimension:
    """One field of the run and the values that it may take: ``choices``, or the range from ``low`` to ``high``."""

    path: str
    choices: tuple[str, ...] = ()
    low: float = 0
    high: float = 0
    whole: bool = False
    log: bool = False

    @property
    def first(self) -> str:
        """The assignment of the first choice, or of the low end."""
        return f"{self.path}={self.choices[0] if self.choices else self.low}"

    def suggest(self, trial: "Trial") -> str:
        """The assignment for ``--set`` that a trial tries: ``training.peak=0.002371``."""
        return f"{self.path}={self._value(trial)}"

    def _value(self, trial: "Trial") -> str:
        if self.choices:
            return str(trial.suggest_categorical(self.path, self.choices))
        if self.whole:
            return f"{trial.suggest_int(self.path, int(self.low), int(self.high), log=self.log)}"
        return f"{trial.suggest_float(self.path, self.low, self.high, log=self.log):.{SIGNIFICANT_DIGITS}g}"


def parse_space(texts: Sequence[str], run: Run, overrides: Sequence[str] = ()) -> tuple[Dimension, ...]:
    """The dimensions behind ``--space`` options; raises BadConfiguration for a text or a field that does not fit."""
    if not texts:
        raise BadConfiguration(f"--space is missing: give at least one of the form {FORMS}")
    dimensions = tuple(_parse(text, run) for text in texts)
    paths = [dimension.path for dimension in dimensions]
    fixed = [assignment.partition("=")[0] for assignment in overrides]
    for path in paths:
        if paths.count(path) > 1:
            raise BadConfiguration(f"--space names {path} twice; give each field one range or one list of values")
        if path in fixed:
            raise BadConfiguration(f"{path} is searched by --space and fixed by --set; remove one of them")
    return dimensions


def _parse(text: str, run: Run) -> Dimension:
    path, equals, values = text.partition("=")
    if not (path and equals and values):
        raise BadConfiguration(f"--space {text}: not of the form {FORMS}")
    if ".." not in values:
        choices = tuple(dict.fromkeys(part.strip() for part in values.split(",") if part.strip()))
        if len(choices) < 2:
            raise BadConfiguration(f"--space {text}: a search needs two or more values; fix one value with --set")
        for choice in choices:
            _read(run, path, choice)
        return Dimension(path, choices)
    span, _, scale = values.partition(":")
    if scale not in ("", "log"):
        raise BadConfiguration(f"--space {text}: the scale is {scale!r}, allowed is log or none")
    low, high = (_read(run, path, end) for end in span.split("..", 1))
    if not all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high)):
        raise BadConfiguration(f"--space {text}: {path} is no number; give its values as {path}=A,B,C")
    assert isinstance(low, int | float)
    assert isinstance(high, int | float)
    if not low < high or (scale and low <= 0):
        raise BadConfiguration(f"--space {text}: allowed is a low end below the high end, above 0 with :log")
    return Dimension(path, (), low, high, isinstance(low, int), bool(scale))


def _read(run: Run, path: str, text: str) -> object:
    """The value that ``--set path=text`` gives the field. It need not fit the run's other values."""
    try:
        return value_of(run, path, text)
    except BadConfiguration as error:
        raise BadConfiguration(f"--space {path}: {error}") from error
