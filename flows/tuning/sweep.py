"""Runs a sweep: trials of one run with proposed settings. Each trial ends at its dev score; trials share stages.

``<root>/sweeps/<name>/`` holds the study, ``sweep.json`` and ``sweep.png``. The same request continues its study unless
the run has changed. If the root is a bucket, the study is in this machine's cache; another machine starts its own study
and finds the stages of tried settings cached. No trial translates a test set.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from flows.runner.group import Group, GroupResults, Members, RunOne, Say, digest, run_group
from flows.runner.outcome import Outcome
from flows.runner.recorded_runs import command_of
from flows.runner.request import ResolvedRun, RunRequest
from flows.runs.completion import RUN_NAMES, OverridesOption
from flows.runs.overrides import by_path
from flows.tuning.search_space import Direction, parse_space
from infra.errors import BadConfiguration, describe
from infra.processes.locks import try_file_lock
from infra.processes.threads import run_in_threads
from infra.store.files import write_atomically
from infra.tracking.run_description import table
from model.metric_names import BEST_DEV_PERPLEXITY, BLEU, CHRF, DEV_PERPLEXITY, PERPLEXITY
from tasks.engine.keys import canonical

if TYPE_CHECKING:
    from flows.tuning.search_space import Distribution
    from flows.tuning.study import SweepStudy, TrialRow

BY_PERPLEXITY = f"dev.{PERPLEXITY}"
MEASURES: dict[str, Direction] = {f"dev.{BLEU}": "maximize", f"dev.{CHRF}": "maximize", BY_PERPLEXITY: "minimize"}
"""The scores that a sweep can optimise, and the direction. All are dev scores: no test set chooses settings."""

NOT_BY_PERPLEXITY = {
    ("vocabulary.", "augment.", "filters."): "changes the vocabulary, on which perplexity depends",
    ("averaging.", "decoding."): "changes nothing before the dev set is translated",
}
"""Fields that a sweep by perplexity cannot search, and why."""


@Parameter(name="*")
@dataclass(frozen=True)
class SweepRequest:
    """Search for the settings of a run with the best dev score; each trial is a child flow.

    Args:
        run: A run's name, as `repro show` lists them, or your own: FILE.toml, FILE.py:NAME.
        spaces: A field and its values: FIELD=LOW..HIGH, FIELD=LOW..HIGH:log or FIELD=A,B,C; repeatable.
        trials: Number of trials, those of earlier calls of the same sweep included.
        on: The score to optimise: dev.bleu, dev.chrf or dev.perplexity.
        overrides: Fields of every trial's run to change, for example training.updates=200; repeatable.
        at_once: Trials that run at the same time.
        site: Where to compute: local or gpu. With gpu, a worker without one fails.
    """

    run: Annotated[str, RUN_NAMES]
    _: KW_ONLY
    spaces: Annotated[tuple[str, ...], Parameter(name="--space", show_default=False)]
    trials: int = 20
    on: str = "dev.bleu"
    overrides: OverridesOption = ()
    at_once: int = 1
    site: str = "local"

    def resolve(self) -> "ResolvedSweep":
        """Resolve the run and the search space. Raises BadConfiguration for a value that is not allowed."""
        for option, number in (("--trials", self.trials), ("--at-once", self.at_once)):
            if number < 1:
                raise BadConfiguration(f"{option} is {number}, allowed is a whole number of at least 1")
        if self.on not in MEASURES:
            allowed = f"{', '.join(MEASURES)}; a sweep chooses on the dev set alone"
            raise BadConfiguration(f"--on is {self.on!r}, allowed is {allowed}")
        base = RunRequest(self.run, overrides=self.overrides, site=self.site).resolve()
        space = parse_space(by_path(self.spaces), base.run, self.overrides)
        for path in space if self.on == BY_PERPLEXITY else ():
            for fields, why in NOT_BY_PERPLEXITY.items():
                if path.startswith(fields):
                    raise BadConfiguration(f"--on is {self.on}, allowed is dev.bleu or dev.chrf: {path} {why}")
        return ResolvedSweep(self, base, space)


@dataclass(frozen=True)
class ResolvedSweep:
    """A request, the run that every trial changes, and the search space."""

    request: SweepRequest
    base: ResolvedRun
    space: "Mapping[str, Distribution]"

    @cached_property
    def name(self) -> str:
        """``demo-3f2a91``: the run, and a digest of request and fields, which changes when the run is edited."""
        request = self.request
        run = canonical(replace(self.base.run, about=""))
        common = [request.run, sorted(request.spaces), request.on, sorted(request.overrides), run]
        return f"{self.base.run.name}-{digest(common)}"

    @cached_property
    def group(self) -> Group:
        """The group of the trials, in the MLflow experiment of the run."""
        request = self.request
        name = f"sweep {self.name}"
        params = {"on": request.on, "space": dict(space.split("=", 1) for space in request.spaces)}
        return Group(name, name, "trial", self.base.run.name, self.base.site, self.base.request.overrides, params)

    @property
    def folder(self) -> Path:
        """The folder of the study and its results."""
        return self.base.site.root / "sweeps" / self.name

    def trial(self, assignments: Sequence[str]) -> ResolvedRun:
        """Make the run of a trial, up to its dev score. Raises BadConfiguration for settings that do not fit."""
        request = self.request
        until = "train" if request.on == BY_PERPLEXITY else "score"
        overrides = (*request.overrides, *assignments, f"evaluate={self.base.run.dev}")
        return RunRequest(request.run, until=until, overrides=overrides, site=request.site).resolve()

    @property
    def measure(self) -> str:
        """What ``on`` means here: of BLEU, the one without case if every trial's model writes lower case."""
        is_lower = self.base.run.vocabulary.lowercase and "vocabulary.lowercase" not in self.space
        return "dev.bleu_lc" if self.request.on == f"dev.{BLEU}" and is_lower else self.request.on

    def value_of(self, outcome: Outcome) -> float:
        """Return the dev score of a trial's outcome."""
        if self.request.on == BY_PERPLEXITY:
            assert outcome.training, "a trial runs until its training"
            facts = outcome.training.facts
            return float(facts.get(BEST_DEV_PERPLEXITY, facts[DEV_PERPLEXITY]))
        return float(outcome.scores[self.base.run.dev][self.measure.removeprefix("dev.")])

    def run(self, run_one: RunOne, say: Say) -> "SweepResults":
        """Run trials until ``trials`` have ended; trials of earlier calls of the same sweep count.

        A trial that fails does not stop the others; the next call tries it again. Raises BadConfiguration if another
        process runs this sweep.
        """
        from flows.tuning.study import SweepStudy  # loads Optuna, which takes a third of a second

        with try_file_lock(self.folder / "lock") as is_free:
            if not is_free:
                raise BadConfiguration(f"another process works in {self.folder}; wait for it, or end it first")
            study = SweepStudy(self.folder, MEASURES[self.request.on], self.space, self.request.trials)
            return run_group(self.group, run_one, say, partial(self._run_trials, study))

    def _run_trials(self, study: "SweepStudy", members: Members) -> "SweepResults":
        """Run the missing trials, ``at_once`` at a time; an interrupt ends all of them."""
        request = self.request
        missing = max(study.total - len(study.rows()), 0)
        if missing < study.total:
            members.say(f"{members.group.name}: {study.total - missing} of {study.total} trials are done")
        run_in_threads([partial(self._run_trial, study, members)] * missing, request.at_once, "trial")
        return SweepResults(self.group, resolved=self, rows=study.rows())

    def _run_trial(self, study: "SweepStudy", members: Members) -> None:
        """Ask the study for settings, run them, and report the score to it."""
        request = self.request
        trial, assignments = study.ask()
        try:
            run = self.trial(assignments)
        except BadConfiguration as error:  # settings that do not fit together
            outcome = Outcome(request.run, failure=describe(error))
        else:
            outcome = members.run(f"{trial.number}", run, assignments)
        value = None if outcome.failure else self.value_of(outcome)
        study.tell(trial, value, outcome.failure)
        members.say(f"trial {trial.number}: {outcome.failure or f'{self.measure} {value:.2f}'}")


@dataclass(frozen=True, kw_only=True)
class SweepResults(GroupResults):
    """The trials of a sweep so far."""

    resolved: ResolvedSweep
    rows: "list[TrialRow]"

    @property
    def best(self) -> "TrialRow | None":
        """The trial with the best score; of equal scores, the first trial."""
        return next((row for row in self.ranked() if row.value is not None), None)

    @property
    def failure(self) -> str:
        """A sweep fails if no trial has a score."""
        failures = dict.fromkeys(row.failure or row.state for row in self.rows)
        return "" if self.best else f"none of {len(self.rows)} trials has a score: {'; '.join(failures)}"

    @property
    def facts(self) -> Mapping[str, Any]:
        best = self.best
        return {"best": best.value, "best settings": " ".join(best.settings)} if best else {}

    @property
    def files(self) -> Sequence[Path]:
        """Write ``sweep.json`` and ``sweep.png`` into the sweep's folder; return their paths."""
        from optuna.distributions import CategoricalDistribution

        from tasks.evaluation import plots

        request = self.resolved.request
        listed = self.resolved.folder / "sweep.json"
        picture = self.resolved.folder / "sweep.png"
        write_atomically(listed, json.dumps(self.as_json(), indent=1, ensure_ascii=False))
        done = [row for row in self.rows if row.value is not None]
        settings = {}
        for place, (path, distribution) in enumerate(self.resolved.space.items()):
            texts = [row.settings[place].partition("=")[2] for row in done]
            if isinstance(distribution, CategoricalDistribution):
                settings[path] = plots.SearchedSetting(texts, choices=[f"{each}" for each in distribution.choices])
            else:
                settings[path] = plots.SearchedSetting([float(text) for text in texts], distribution.log)
        scores = {row.number: row.value for row in done if row.value is not None}
        picture.write_bytes(
            plots.sweep(self.resolved.measure, scores, MEASURES[request.on] == "maximize", settings, plots.LIGHT)
        )
        return [listed, picture]

    @property
    def markdown(self) -> str:
        """The optimised score, the command of the best trial, and the table of trials."""
        on = self.resolved.measure
        first = self.best
        best = [f"Best: trial {first.number}, {on} {first.value:.2f}", f"`{self.command}`"] if first else []
        rows = [
            [
                f"{row.number}",
                row.failure or row.state if row.value is None else f"{row.value:.2f}",
                " ".join(row.settings),
            ]
            for row in self.ranked()
        ]
        wanted = f"{MEASURES[self.resolved.request.on]} {on}"
        searched = f"Searched for the settings that {wanted}. The picture is among the artifacts."
        return "\n\n".join([searched, *best, table(["trial", on, "settings"], rows)])

    @property
    def command(self) -> str:
        """The command for a whole run with the best settings and all evaluation sets; "" if no trial has a score."""
        best = self.best
        if best is None:
            return ""
        request = self.resolved.request
        return command_of(request.run, (*request.overrides, *best.settings), {"site": request.site})

    def ranked(self) -> "list[TrialRow]":
        """The trials with a score, best first, then the others by number."""
        sign = -1 if MEASURES[self.resolved.request.on] == "maximize" else 1
        return sorted(self.rows, key=lambda row: (row.value is None, sign * (row.value or 0.0), row.number))

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.resolved.name,
            **asdict(self.resolved.request),
            "measure": self.resolved.measure,
            "best": asdict(self.best) if self.best else None,
            "command": self.command,
            "table": [asdict(row) for row in self.rows],
        }
