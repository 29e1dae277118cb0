"""The study of a sweep: its trials, in a file from which a sweep that was cut off goes on.

A trial is COMPLETE with its dev score, PRUNED by its dev curve, or FAIL. One that is RUNNING while no sweep holds the
study's lock was cut off. It is queued again with the same settings, as is each that failed in an earlier sitting, so
that finished stages and checkpoints count.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from flows.tuning.search_space import JOURNAL, Dimension, Direction
from infra.errors import BadConfiguration, NetworkFault
from infra.store.files import write_atomically
from infra.store.store import Store

FAILURE = "failure"
ASSIGNMENTS = "assignments"
REPEATED = "repeated"
"""Attributes of trials, and one of the study: the failed trials that were queued again."""
STARTUP_TRIALS = 5
"""Trials with random settings, none of them pruned, before the search learns from results."""


@dataclass(frozen=True)
class TrialRow:
    """A trial as a table shows it; ``value`` is the dev score of a complete one."""

    number: int
    state: str
    value: float | None
    settings: tuple[str, ...]
    seconds: float
    failure: str = ""


@dataclass
class SweepStudy:
    """The trials of one sweep. Its methods may be called from several threads."""

    folder: Path
    direction: Direction
    dimensions: Sequence[Dimension]
    save: Callable[[], None] = lambda: None
    """Called after each change, one call at a time: sends the journal to where another machine finds it."""
    study: Study = field(init=False)
    _saving: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        """Open or create the study. The caller holds its lock."""
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.folder.mkdir(parents=True, exist_ok=True)
        file = f"{self.folder / JOURNAL}"
        _drop_half_line(self.folder / JOURNAL)
        try:
            storage = JournalStorage(JournalFileBackend(file, lock_obj=JournalFileOpenLock(file)))
            self.study = optuna.create_study(
                storage=storage, study_name="sweep", direction=self.direction, load_if_exists=True
            )
        except (ValueError, KeyError) as error:
            raise BadConfiguration(f"{file} is damaged ({error}); move it away to begin the sweep again") from error
        done = len(self.study.get_trials(deepcopy=False))
        # A sampler that began with the same seed again would repeat its first proposals.
        self.study.sampler = optuna.samplers.TPESampler(seed=done, n_startup_trials=STARTUP_TRIALS, constant_liar=True)
        self.study.pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS)
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING, TrialState.FAIL)):
            if trial.state == TrialState.RUNNING:
                self.study.tell(trial.number, state=TrialState.FAIL)  # without FAILURE: cut off
            elif FAILURE in trial.user_attrs and trial.number not in self._repeated:
                self.study.set_user_attr(REPEATED, sorted(self._repeated | {trial.number}))
            else:
                continue  # queued by an earlier sitting
            self.study.enqueue_trial(trial.params)

    @property
    def _repeated(self) -> set[int]:
        return set(self.study.user_attrs.get(REPEATED, ()))

    def _save(self) -> None:
        with self._saving:
            self.save()

    def ask(self) -> tuple[Trial, tuple[str, ...]]:
        """A new trial and its assignments for ``--set``."""
        trial = self.study.ask()
        assignments = tuple(dimension.suggest(trial) for dimension in self.dimensions)
        trial.set_user_attr(ASSIGNMENTS, assignments)
        self._save()
        return trial, assignments

    def tell(self, trial: Trial, value: float | None, *, pruned: bool = False, failure: str = "") -> None:
        """End a trial with its score, as pruned or as failed."""
        state = TrialState.PRUNED if pruned else TrialState.COMPLETE
        if value is None and not pruned:
            trial.set_user_attr(FAILURE, failure)
            state = TrialState.FAIL
        self.study.tell(trial, None if pruned else value, state=state)
        self._save()

    @property
    def ended(self) -> int:
        """The number of trials that ended, those that were queued again not counted."""
        return sum(row.state != "running" for row in self.rows())

    def rows(self) -> list[TrialRow]:
        """All trials by number, without those that were queued again."""
        repeated = self._repeated
        return [
            _row(trial)
            for trial in self.study.get_trials(deepcopy=False)
            if trial.number not in repeated
            and trial.state != TrialState.WAITING
            and (trial.state != TrialState.FAIL or FAILURE in trial.user_attrs)
        ]


def send(store: Store, folder: Path, check_claim: Callable[[], None], say: Callable[[str], None]) -> None:
    """Share the journal of a claimed study; where the store does not answer, say so: the next call sends everything.

    Raises Fault if another machine has taken the sweep over.
    """
    try:
        check_claim()
        store.share(folder / JOURNAL)
    except NetworkFault as fault:
        say(f"the study is not sent: {fault}")


def _drop_half_line(journal: Path) -> None:
    """Remove the last line of a journal that was cut off within it; Optuna would write on behind it."""
    content = journal.read_bytes() if journal.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        write_atomically(journal, whole.decode())


def _row(trial: FrozenTrial) -> TrialRow:
    duration = trial.duration.total_seconds() if trial.duration else 0.0
    state = {"FAIL": "failed"}.get(trial.state.name, trial.state.name.lower())
    assignments = tuple(trial.user_attrs.get(ASSIGNMENTS, ()))
    return TrialRow(
        trial.number,
        state,
        trial.value if state == "complete" else None,
        assignments,
        duration,
        str(trial.user_attrs.get(FAILURE, "")),
    )
