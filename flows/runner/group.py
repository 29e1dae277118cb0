"""Runs several runs as a group: seeds of a run, rows of the paper, trials of a sweep.

In MLflow a group is the parent run of its members; a later call with the group's name continues it. A member whose
stages are all cached is taken from the store. A member that fails does not stop the others.
"""

import hashlib
import json
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from flows.runner.outcome import Outcome, StageFailed, cached_outcome
from flows.runner.request import ResolvedRun, RunPlan, make_plan
from flows.runner.run import RunRecord
from flows.runs.overrides import run_title
from infra.errors import Fault, describe
from infra.processes.threads import run_in_threads
from infra.site import Site
from infra.tracking.mlflow_runs import OVERRIDES, RunFile
from infra.tracking.model_version import headline
from infra.tracking.run_description import table
from infra.tracking.tracker import Tracker, ending

RunOne = Callable[[RunPlan], Outcome]
Say = Callable[[str], None]


def digest(settings: Any) -> str:
    """Hash the settings that a group's name omits to six characters."""
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:6]


@dataclass(frozen=True)
class Group:
    """What the runs of a group have in common."""

    name: str
    """The name in the records of its members: ``sweep demo-3f2a91``, ``paper-demo-scale8``."""
    title: str
    noun: str
    """``seed``, ``row`` or ``trial``."""
    experiment: str
    site: Site
    overrides: tuple[str, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    members: Mapping[str, ResolvedRun] = field(default_factory=dict)
    """Empty for a sweep: scores of earlier trials decide the next ones."""

    @cached_property
    def cached_plans(self) -> Mapping[str, RunPlan]:
        """Plans of the members before the first one with work; later members may reuse the stages that it makes."""
        plans: dict[str, RunPlan] = {}
        for member, resolved in self.members.items():
            planned = make_plan(resolved)
            if cached_outcome(planned.outcome) is None:
                break
            plans[member] = planned
        return plans

    @property
    def has_work(self) -> bool:
        """Whether a stage of a member is missing. A sweep always has work."""
        return not self.members or len(self.cached_plans) < len(self.members)


@dataclass(frozen=True)
class GroupResults:
    """The outcome of each member of a group."""

    group: Group
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)

    @property
    def failures(self) -> dict[str, str]:
        """The failure of each failed member."""
        return {member: outcome.failure for member, outcome in self.outcomes.items() if outcome.failure}

    @property
    def failure(self) -> str:
        """Why the group failed; "" if it succeeded."""
        noun = self.group.noun
        failures = "; ".join(f"{noun} {member}: {failure}" for member, failure in self.failures.items())
        return f"{len(self.failures)} of {len(self.outcomes)} {noun}s failed: {failures}" if failures else ""

    @property
    def facts(self) -> Mapping[str, Any]:
        """BLEU by member and set, ``A1.newstest2013.bleu``, so that one chart shows the members; see ``headline``."""
        return {
            f"{member}.{name}.{headline(card)}": card[headline(card)]
            for member, outcome in self.outcomes.items()
            for name, card in outcome.own_scores.items()
            if headline(card) in card
        }

    @property
    def markdown(self) -> str:
        """The failure if there is one, and the table of members and scores."""
        rows = [[name, f"{bleu:.2f}"] for name, bleu in self.facts.items()]
        return f"{self.failure}\n\n{table([f'{self.group.noun} and set', 'BLEU'], rows)}".lstrip()

    @property
    def files(self) -> Sequence[Path]:
        """Files to log to the group's run in MLflow."""
        return ()


R = TypeVar("R", bound=GroupResults)


class GroupFailed(Fault):
    """A group failed; ``found`` has the results of all members."""

    def __init__(self, found: Any) -> None:
        super().__init__(found.failure)
        self.found = found


@dataclass(frozen=True)
class Members:
    """Runs members of a group, below ``parent`` in MLflow."""

    group: Group
    parent: str
    run_one: RunOne
    say: Say

    def run(self, member: str, resolved: ResolvedRun, settings: Sequence[str]) -> Outcome:
        """Run a member unless its stages are all cached; its failure is in the outcome."""
        group = self.group
        label = f"{group.noun} {member}"
        title = run_title(label, settings)
        own = replace(resolved, title=title, parent=self.parent, group=group.name, experiment=group.experiment)
        try:
            known = group.cached_plans.get(member)
            planned = replace(known, resolved=own) if known else make_plan(own)
            if cached := cached_outcome(planned.outcome):
                self.say(f"{label}: every stage is cached")
                RunRecord(planned, self.say).conclude(cached)
                return cached
            self.say(f"{label}: {' '.join(settings) or own.request.run}")
            return self.run_one(planned)
        except StageFailed as failed:
            return failed.outcome
        except (Fault, OSError) as error:  # such as an unreachable server: the next member may succeed
            return Outcome(resolved.run.name, failure=describe(error))


def run_group(group: Group, run_one: RunOne, say: Say, work: Callable[[Members], R]) -> R:
    """Start or continue the group's run in MLflow, do the work below it, and end it with the results."""
    place = group.site.remote or f"{socket.gethostname()}:{group.site.root.absolute()}"
    token = f"{group.name} {digest(place)}"  # a server may have other users
    tracker = Tracker(group.site.tracking, group.site.root.absolute() / "mlflow-artifacts", token=token)
    parent = tracker.start(group.experiment, group.title, {OVERRIDES: " ".join(group.overrides)}, group.params)
    with ending(tracker) as end:
        results = work(Members(group, parent, run_one, say))
        tracker.describe(results.markdown)  # makes the run too, if MLflow did not answer before
        parent = tracker.run_id
        tracker.log_files(parent, lambda: [RunFile(file.name, file.read_bytes()) for file in results.files])
        end.status = "FAILED" if results.failure else "FINISHED"
        tracker.finish_stage(parent, end.status, results.facts)
        return results


def run_members(
    group: Group, at_once: int, run_one: RunOne, say: Say, results: Callable[[Mapping[str, Outcome]], R]
) -> R:
    """Run the members of the group, ``at_once`` at a time. Without work, starts no run in MLflow."""

    def work(members: Members) -> R:
        def run_member(name: str, own: ResolvedRun) -> Outcome:
            outcome = members.run(name, own, own.request.overrides)
            if outcome.failure:
                say(f"{group.noun} {name}: {outcome.failure}")
            return outcome

        calls = [partial(run_member, name, own) for name, own in group.members.items()]
        outcomes = run_in_threads(calls, at_once, group.noun)
        return results(dict(zip(group.members, outcomes, strict=True)))

    return run_group(group, run_one, say, work) if group.has_work else work(Members(group, "", run_one, say))
