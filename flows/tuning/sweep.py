"""A sweep: trials of one run with proposed settings, each a run up to its dev score that shares stages with the others.

``<root>/sweeps/<name>/`` holds the study, ``sweep.json`` and ``sweep.png``. The same request continues its study while
the run computes the same, from another machine too where the root is a bucket. No trial translates a test set.
"""

import hashlib
import json
import math
import platform
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.runner.outcome import Outcome, StageFailed
from flows.runner.request import ResolvedRun, RunRequest
from flows.runs.initial_weights import initial_weights_of
from flows.runs.overrides import run_title
from flows.tuning.search_space import Dimension, Direction, parse_space
from flows.tuning.study_copy import StudyCopy
from infra.errors import BadConfiguration, Fault, Pruned, describe
from infra.processes.threads import run_in_threads
from infra.site import open_store
from infra.store.files import write_atomically
from infra.tracking.run_description import table
from infra.tracking.tracker import Tracker
from model.metric_names import BEST_DEV_PERPLEXITY, BLEU, CHRF, DEV_PERPLEXITY, PERPLEXITY
from tasks.engine.planner import KeyList
from tasks.engine.progress import ignore_metrics
from tasks.engine.stage import StageCall

if TYPE_CHECKING:
    from optuna.trial import Trial

    from flows.tuning.study import TrialRow

BY_PERPLEXITY = f"dev.{PERPLEXITY}"
MEASURES: dict[str, Direction] = {f"dev.{BLEU}": "maximize", f"dev.{CHRF}": "maximize", BY_PERPLEXITY: "minimize"}
"""What a sweep can search for, and the direction. All are dev scores: no setting is chosen on a test set."""
PRUNED_STAGE = "train"


@dataclass(frozen=True)
class SweepRequest:
    """Which run, which fields with which values, how many trials, and what to search for."""

    run: str
    spaces: tuple[str, ...]
    trials: int = 20
    on: str = "dev.bleu"
    prune: bool = True
    overrides: tuple[str, ...] = ()
    at_once: int = 1
    site: str = "local"
    take_over: bool = False

    def resolve(self) -> "ResolvedSweep":
        """The run and the search space; raises BadConfiguration for a value that is not allowed."""
        for option, number in (("--trials", self.trials), ("--at-once", self.at_once)):
            if number < 1:
                raise BadConfiguration(f"{option} is {number}, allowed is a whole number of at least 1")
        if self.on not in MEASURES:
            allowed = f"{', '.join(MEASURES)}; a sweep chooses on the dev set alone"
            raise BadConfiguration(f"--on is {self.on!r}, allowed is {allowed}")
        base = RunRequest(self.run, overrides=self.overrides, site=self.site).resolve()
        return ResolvedSweep(self, base, parse_space(self.spaces, base.run, self.overrides))


@dataclass(frozen=True)
class ResolvedSweep:
    """A request, the run that every trial changes, and the search space."""

    request: SweepRequest
    base: ResolvedRun
    dimensions: tuple[Dimension, ...]

    @cached_property
    def name(self) -> str:
        """``demo-3f2a91``: the run, and a digest of the request and of what its trials compute."""
        asked = self.request
        common = json.dumps([asked.run, sorted(asked.spaces), asked.on, sorted(asked.overrides), self._content()])
        return f"{self.base.run.name}-{hashlib.sha256(common.encode()).hexdigest()[:6]}"

    def _content(self) -> list[str]:
        """The keys of a trial's stages: scores of a run that was edited since belong to another sweep.

        Searched fields have the first of their values, so that the run's own value of them does not count; if these do
        not fit together, it does.
        """
        try:
            trial = self.trial([dimension.first for dimension in self.dimensions])
        except BadConfiguration:
            trial = self.trial(())
        listed = KeyList(trial.scope)
        trial.call_stages(listed, initial_weights_of(trial.run, trial.site, open_store(trial.site)))
        return listed.keys

    @property
    def folder(self) -> Path:
        """The folder of the study and its results."""
        return self.base.site.root / "sweeps" / self.name

    def trial(self, assignments: Sequence[str]) -> ResolvedRun:
        """The run of a trial, up to the score of the dev set; raises BadConfiguration for settings that do not fit."""
        asked = self.request
        until = "train" if asked.on == BY_PERPLEXITY else "score"
        overrides = (*asked.overrides, *assignments, f"evaluate={self.base.run.dev}")
        return RunRequest(asked.run, until=until, overrides=overrides, site=asked.site).resolve()

    def value_of(self, outcome: Outcome) -> float:
        """The dev score of a trial's outcome."""
        if self.request.on == BY_PERPLEXITY:
            facts = next(row.facts for row in outcome.rows if row.stage == "train")
            return float(facts.get(BEST_DEV_PERPLEXITY, facts[DEV_PERPLEXITY]))
        return float(outcome.scores[self.base.run.dev][self.request.on.removeprefix("dev.")])


@dataclass(frozen=True)
class SweepResults:
    """The trials of a sweep so far."""

    resolved: ResolvedSweep
    rows: "list[TrialRow]"
    best: "TrialRow | None"

    @property
    def command(self) -> str:
        """The command that runs the best settings whole, with all evaluation sets; "" if no trial has a score."""
        if self.best is None:
            return ""
        asked = self.resolved.request
        assignments = (*asked.overrides, *self.best.settings)
        place = ["--site", asked.site] if asked.site != "local" else []
        return shlex.join(["repro", "run", asked.run, *(w for each in assignments for w in ("--set", each)), *place])

    def ranked(self) -> "list[TrialRow]":
        """The trials with a score, the best first, then the others in their order."""
        sign = -1 if MEASURES[self.resolved.request.on] == "maximize" else 1
        return sorted(self.rows, key=lambda row: (row.value is None, sign * (row.value or 0.0), row.number))

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.resolved.name,
            **asdict(self.resolved.request),
            "best": asdict(self.best) if self.best else None,
            "command": self.command,
            "table": [asdict(row) for row in self.rows],
        }


def run_sweep(
    resolved: ResolvedSweep, run_trial: Callable[[ResolvedRun], Outcome], say: Callable[[str], None]
) -> SweepResults:
    """Run trials until as many have ended as were asked for; trials of an earlier call of the same sweep count.

    A trial that fails does not stop the others; the next call tries it again. Raises BadConfiguration if another
    process or machine runs this sweep, Fault if no trial has a score.
    """
    store = open_store(resolved.base.site)
    store.say = say
    with store.claimed(resolved.folder, resolved.request.take_over) as check_claim:
        sweep = _Sweep(resolved, run_trial, say, StudyCopy(store, resolved.folder, check_claim, say))
        status = "KILLED"
        try:
            sweep.run()
            status = "FINISHED"
        finally:
            sweep.finish(status)
    found = sweep.results()
    if found.best is None:
        failures = dict.fromkeys(row.failure or row.state for row in found.rows)
        raise Fault(f"none of {len(found.rows)} trials has a score: {'; '.join(failures)}")
    return found


class _Sweep:
    """One sitting of a sweep: asks for settings, runs them, tells the study, logs to MLflow."""

    def __init__(
        self,
        resolved: ResolvedSweep,
        run_trial: Callable[[ResolvedRun], Outcome],
        say: Callable[[str], None],
        copy: StudyCopy,
    ) -> None:
        from flows.tuning.study import SweepStudy  # loads Optuna, for a third of a second

        self.resolved = resolved
        self.run_trial = run_trial
        self.say = say
        self._lock = threading.Lock()
        site = resolved.base.site
        asked = resolved.request
        copy.fetch()
        place = "" if site.shares_tracking else f" of {site.root.absolute()} on {platform.node()}"
        self.study: SweepStudy = SweepStudy(
            resolved.folder, MEASURES[asked.on], resolved.dimensions, save=copy.send, mlflow_place=place
        )
        self.tracker = Tracker(site.tracking, site.root.absolute() / "mlflow-artifacts")
        if self.study.mlflow_run:
            self.tracker.join(self.study.mlflow_run)
        else:
            name = f"sweep {resolved.name}"
            tags = {"sweep": resolved.name, "overrides": " ".join(self.resolved.base.request.overrides)}
            params = {"on": asked.on, "space": dict(space.split("=", 1) for space in asked.spaces)}
            self.study.mlflow_run = self.tracker.start(resolved.base.run.name, name, tags, params)

    def run(self) -> None:
        """Run what is missing, ``at_once`` trials at a time; an interrupt ends all of them."""
        asked = self.resolved.request
        missing = asked.trials - self.study.ended
        if missing < asked.trials:
            self.say(f"sweep {self.resolved.name}: {asked.trials - max(missing, 0)} of {asked.trials} trials are done")
        run_in_threads([self._run_one] * missing, asked.at_once, "trial")

    def _run_one(self) -> None:
        asked = self.resolved.request
        (trial, assignments) = self.study.ask()
        label = f"trial {trial.number}"
        self.say(f"{label} of {asked.trials}: {' '.join(assignments)}")
        watch = DevCurve(trial, MEASURES[asked.on])
        value = None
        failure = ""
        pruned = ""
        try:
            run = replace(
                self.resolved.trial(assignments),
                title=run_title(label, assignments),
                parent=self.study.mlflow_run,
                group=f"sweep {self.resolved.name}",
                watch=watch if asked.prune else ignore_metrics,
            )
            outcome = self.run_trial(run)
            pruned = outcome.pruned
            value = None if pruned else self.resolved.value_of(outcome)
        except StageFailed as failed:
            failure = failed.outcome.failure
        except (Fault, OSError) as error:  # settings that do not fit together, an unreachable server
            failure = describe(error)
        self.study.tell(trial, value, pruned=bool(pruned), failure=failure)
        shown = f"{asked.on} {value:.2f}" if value is not None else pruned or failure
        self.say(f"{label}: {shown}")
        with self._lock:
            write_results(self.results())
            if value is not None:
                row = {"done": self.study.ended, "time": time.time(), asked.on: value}
                self.tracker.log_rows(self.study.mlflow_run, [row])

    def results(self) -> SweepResults:
        return SweepResults(self.resolved, self.study.rows(), self.study.best())

    def finish(self, status: str) -> None:
        """Draw the picture, log it with the table, and end the group in MLflow."""
        found = self.results()
        files = write_results(found)
        facts = {"best": found.best.value, "best settings": " ".join(found.best.settings)} if found.best else {}
        self.tracker.log_artifacts(self.study.mlflow_run, files)
        self.tracker.describe(description(found))
        self.tracker.finish_stage(self.study.mlflow_run, status, facts)
        self.tracker.finish(status)


class DevCurve:
    """Reports the dev curve of a trial's training to the study; raises Pruned where that gives the trial up."""

    def __init__(self, trial: "Trial", direction: Direction) -> None:
        self.trial = trial
        self.sign = 1 if direction == "minimize" else -1

    def __call__(self, call: StageCall, rows: Sequence[Mapping[str, Any]]) -> None:
        for row in rows if call.stage.name == PRUNED_STAGE else ():
            if DEV_PERPLEXITY not in row or row["done"] >= row["total"]:
                continue
            self.trial.report(self.sign * math.log(row[DEV_PERPLEXITY]), int(row["done"]))
            if self.trial.should_prune():
                raise Pruned(
                    f"pruned at update {row['done']:,}: dev perplexity {row[DEV_PERPLEXITY]:.2f} is worse than the"
                    " median of the other trials"
                )


def description(found: SweepResults) -> str:
    """What MLflow says of the sweep, in Markdown: what it searched for, the command of the best, the trials."""
    on = found.resolved.request.on
    best = [f"Best: trial {found.best.number}, {on} {found.best.value:.2f}", f"`{found.command}`"] if found.best else []
    rows = [
        [f"{row.number}", row.failure or row.state if row.value is None else f"{row.value:.2f}", " ".join(row.settings)]
        for row in found.ranked()
    ]
    searched = f"Searched for the settings that {MEASURES[on]} {on}. The picture is among the artifacts."
    return "\n\n".join([searched, *best, table(["trial", on, "settings"], rows)])


def write_results(found: SweepResults) -> list[Path]:
    """Write ``sweep.json`` and ``sweep.png`` into the sweep's folder; gives their paths."""
    from tasks.evaluation import plots

    folder = found.resolved.folder
    asked = found.resolved.request
    listed = folder / "sweep.json"
    picture = folder / "sweep.png"
    write_atomically(listed, json.dumps(found.as_json(), indent=1, ensure_ascii=False))
    done = [row for row in found.rows if row.value is not None]
    settings = {
        each.path: plots.SearchedSetting(
            [row.settings[place].partition("=")[2] for row in done], each.choices, each.low, each.high, each.log
        )
        for place, each in enumerate(found.resolved.dimensions)
    }
    values = {row.number: row.value for row in done if row.value is not None}
    picture.write_bytes(plots.sweep(asked.on, values, MEASURES[asked.on] == "maximize", settings, plots.LIGHT))
    return [listed, picture]
