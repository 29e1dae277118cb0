"""Runs that a kill, a crash or a machine that went down interrupted.

``unfinished`` lists them, each with the command that resumes it. ``sweep`` closes what would otherwise stay "Running"
for ever: flow runs and task runs at Prefect's server, runs in MLflow, and records.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.runner import records
from infra.errors import Fault
from infra.processes.identity import process_state
from infra.servers.environment import server_configured
from infra.servers.prefect_states import close_abandoned
from infra.site import Site, open_store

RUNNING, KILLED, FINISHED = "RUNNING", "KILLED", "FINISHED"
FLOWS = ("reproduce", "stage", "paper")
"""The flows of ``flows.orchestration.prefect_flows``."""


@dataclass(frozen=True)
class InterruptedRun:
    """A run that started and neither finished nor failed."""

    run: str
    overrides: tuple[str, ...]
    asked: Mapping[str, Any]
    """The fields of its request: ``flows.runner.records.WORDS``."""
    begun: str
    """When, as its record is named: UTC, to be compared as text."""
    record: Path
    attempt: str = ""
    """Which one its forced stages belong to."""

    @property
    def command(self) -> str:
        """The command that resumes the run. Finished stages stay cached, and a training resumes from its checkpoint.

        Forced stages resume too: the same request continues the same attempt, as long as that was interrupted.
        """
        words = ["repro", "run", self.asked.get("run") or self.run]
        words += [word for value in self.overrides for word in ("--set", value)]
        words += ["--from", self.asked["from_stage"]] if self.asked.get("from_stage") else []
        words += [word for stage in self.asked.get("force", ()) for word in ("--force", stage)]
        words += ["--until", self.asked["until"]] if self.asked.get("until") else []
        words += ["--site", self.asked["site"]] if self.asked.get("site", "local") != "local" else []
        return shlex.join(words)

    def as_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "overrides": list(self.overrides),
            "begun": self.begun,
            "command": self.command,
            "record": f"{self.record}",
        }


def unfinished(site: Site) -> list[InterruptedRun]:
    """Interrupted runs that were not resumed since, newest first. Runs of other machines are left out.

    Each set of overrides and each ``--until`` counts as a run of its own. A run with forced stages also resumes an
    interrupted run without; not the other way round, because forced stages may exist already.
    """
    newest: dict[tuple[object, ...], dict[tuple[object, ...], tuple[InterruptedRun, str]]] = {}
    for found, outcome in sorted(_read_records(site), key=lambda each: each[0].begun):
        asked = found.asked
        same = newest.setdefault((found.run, found.overrides, asked.get("until", "")), {})
        forced = (asked.get("from_stage", ""), *asked.get("force", ()))
        if any(forced):
            same.pop(("",), None)
        same[forced] = found, outcome
    cut_off = [found for same in newest.values() for found, outcome in same.values() if outcome == KILLED]
    return sorted(cut_off, key=lambda found: found.begun, reverse=True)


def attempt_to_resume(site: Site, run: str, asked: Mapping[str, Any], *, again: bool = False) -> InterruptedRun | None:
    """The newest record of ``run`` for the same request if that was interrupted, else None.

    ``again``: the caller is a retry of that very flow run, so it is over in any case, and a failed one resumes too.
    """
    words = {word: asked[word] for word in records.WORDS} | {"force": list(asked["force"])}
    same = [
        (found, outcome)
        for found, outcome in _read_records(site, records.record_folder(run))
        if found.asked == words and found.overrides == tuple(asked["overrides"])
    ]
    if not same:
        return None
    found, outcome = max(same, key=lambda each: each[0].begun)
    return found if outcome == KILLED or (again and outcome != FINISHED) else None


def sweep(site: Site) -> int:
    """Close what dead processes left "Running" at Prefect's server, in MLflow and in records; returns how many runs.

    A run sweeps when it begins, a worker when a flow's process was killed, and so do `repro unfinished --sweep` and
    `repro up`. A server that does not answer leaves its part for the next sweep.
    """
    closed = close_abandoned(FLOWS) if server_configured() else 0
    return max(closed, _close_records(site))


def _close_records(site: Site) -> int:
    left = [found for found, outcome in _read_records(site) if outcome == KILLED and _is_recorded_running(found.record)]
    if not left:
        return 0
    from infra.tracking.client import end_abandoned

    try:
        end_abandoned(site.tracking)
        store = open_store(site)
        for found in left:
            records.set_outcome(found.record, KILLED)
            store.send(found.record)
    except (Fault, OSError):
        return 0
    except Exception as error:
        if not type(error).__module__.startswith(("mlflow", "sqlalchemy", "requests")):
            raise
        return 0
    return len(left)


def _read_records(site: Site, place: str = "runs/*") -> Iterator[tuple[InterruptedRun, str]]:
    """Yield each record with its outcome, which is KILLED if the record says RUNNING and its process is dead."""
    for path in site.root.glob(f"{place}/*.json"):
        header = records.read_header(path)
        if not header:
            continue
        outcome = header["outcome"]
        if outcome == RUNNING and process_state(header.get("process", "")) == "gone":
            outcome = KILLED
        overrides, asked = tuple(header["overrides"]), header.get("asked", {})
        yield InterruptedRun(header["run"], overrides, asked, path.stem, path, header.get("attempt", "")), outcome


def _is_recorded_running(path: Path) -> bool:
    return records.read_header(path).get("outcome") == RUNNING
