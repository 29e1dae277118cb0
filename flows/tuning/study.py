"""Stores the trials of a sweep in a file (the study), from which an interrupted sweep continues.

A trial ends as COMPLETE with its dev score, or as FAIL; earlier releases also wrote PRUNED. A trial that is RUNNING
while no sweep holds the study's lock was interrupted. An interrupted or failed trial is queued again with the same
settings, so that its finished stages and checkpoints are reused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from flows.runs.overrides import by_path
from flows.tuning.search_space import Direction
from infra.errors import BadConfiguration
from infra.store.files import write_atomically

JOURNAL = "study.log"
FAILURE = "failure"
ASSIGNMENTS = "assignments"
REPEATED = "repeated"
"""Attributes of trials, and an attribute of the study: the trials that were queued again."""
SIGNIFICANT_DIGITS = 4
"""Digits of a proposed number: precise enough, and short enough to type again."""
STARTUP_TRIALS = 5
"""Trials with random settings before the search uses results."""


@dataclass(frozen=True)
class TrialRow:
    """A trial as a table shows it; ``value`` is the dev score of a complete trial."""

    number: int
    state: str
    value: float | None
    settings: tuple[str, ...]
    seconds: float
    failure: str = ""


class SweepStudy:
    """The trials of one sweep. Its methods may be called from several threads."""

    def __init__(self, folder: Path, direction: Direction, space: Mapping[str, BaseDistribution], trials: int) -> None:
        """Open or create the study. The caller holds its lock.

        If every field has a list of values, and ``trials`` are enough for all combinations, each is tried once.
        """
        self.space = dict(space)
        self.study = _open_study(folder / JOURNAL, direction)
        done = len(self.study.get_trials(deepcopy=False))
        # With the same seed again, the sampler would repeat its first proposals.
        self.study.sampler = optuna.samplers.TPESampler(seed=done, n_startup_trials=STARTUP_TRIALS, constant_liar=True)
        repeated = self._repeated
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING, TrialState.FAIL)):
            if trial.state == TrialState.RUNNING:
                self.study.tell(trial.number, state=TrialState.FAIL)
            if trial.number not in repeated:
                self.study.enqueue_trial(trial.params)
                self.study.set_user_attr(REPEATED, sorted(self._repeated | {trial.number}))
        lists = [each.choices for each in space.values() if isinstance(each, CategoricalDistribution)]
        self.total = trials
        """How many trials there will be."""
        if lists and len(lists) == len(space) and prod(map(len, lists)) <= trials:
            for values in product(*lists):
                self.study.enqueue_trial(dict(zip(space, values, strict=True)), skip_if_exists=True)
            waiting = self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
            self.total = len(self.rows()) + len(waiting)

    @property
    def _repeated(self) -> set[int]:
        return set(self.study.user_attrs.get(REPEATED, ()))

    def ask(self) -> tuple[Trial, tuple[str, ...]]:
        """Propose a new trial; return it with its assignments for ``--set``."""
        trial = self.study.ask(self.space)
        assignments = tuple(
            f"{path}={f'{value:.{SIGNIFICANT_DIGITS}g}' if isinstance(value, float) else value}"
            for path, value in trial.params.items()
        )
        trial.set_user_attr(ASSIGNMENTS, assignments)
        return trial, assignments

    def tell(self, trial: Trial, value: float | None, failure: str = "") -> None:
        """End a trial with its score or as failed."""
        if value is None:
            trial.set_user_attr(FAILURE, failure)
            self.study.tell(trial, state=TrialState.FAIL)
        else:
            self.study.tell(trial, value)

    def rows(self) -> list[TrialRow]:
        """List all trials by number, without those that were queued again."""
        repeated = self._repeated
        trials = self.study.get_trials(deepcopy=False)
        return [_row(each) for each in trials if each.number not in repeated and each.state != TrialState.WAITING]


def _open_study(journal: Path, direction: Direction) -> Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    journal.parent.mkdir(parents=True, exist_ok=True)
    content = journal.read_bytes() if journal.exists() else b""
    whole_lines = content[: content.rfind(b"\n") + 1]
    if whole_lines != content:  # a kill left half a line, and Optuna would append to it
        write_atomically(journal, whole_lines.decode())
    try:
        storage = JournalStorage(JournalFileBackend(f"{journal}", lock_obj=JournalFileOpenLock(f"{journal}")))
        return optuna.create_study(storage=storage, study_name="sweep", direction=direction, load_if_exists=True)
    except (ValueError, KeyError) as error:
        raise BadConfiguration(f"{journal} is damaged ({error}); move it away to begin the sweep again") from error


def _row(trial: FrozenTrial) -> TrialRow:
    state = {"FAIL": "failed"}.get(trial.state.name, trial.state.name.lower())
    return TrialRow(
        trial.number,
        state,
        trial.value if state == "complete" else None,
        by_path(trial.user_attrs.get(ASSIGNMENTS, ())),
        trial.duration.total_seconds() if trial.duration else 0.0,
        f"{trial.user_attrs.get(FAILURE, '')}",
    )
