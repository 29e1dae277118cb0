"""Runs that were interrupted because their process or machine died.

``unfinished`` lists them, each with the command that resumes it. ``close_dead_runs`` closes the flow runs and task runs
at Prefect's server, the runs in MLflow and the records that would otherwise stay "Running" for ever.
"""

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.runner import records
from infra.errors import Fault
from infra.processes.identity import process_state
from infra.servers.environment import server_configured
from infra.servers.prefect_states import close_abandoned
from infra.site import Site, open_store
from infra.store.files import write_atomically

RUNNING, KILLED, FINISHED = "RUNNING", "KILLED", "FINISHED"
RETRY_SECONDS = 600.0
"""Cached runs try again to close dead runs this long after a failure, and not before."""
FLOWS = ("reproduce", "stage", "paper", "sweep", "canary")
"""The flows of ``flows.orchestration``."""


@dataclass(frozen=True)
class InterruptedRun:
    """A run that started and neither finished nor failed."""

    run: str
    overrides: tuple[str, ...]
    request: Mapping[str, Any]
    """The fields of its request: ``flows.runner.records.REQUEST_FIELDS``."""
    started: str
    """The start time in the name of its record: UTC; sorts as text."""
    record: Path
    attempt: str = ""
    """The attempt that its forced stages belong to."""

    @property
    def command(self) -> str:
        """The command that resumes the run. Finished stages stay cached, and a training resumes from its checkpoint.

        Forced stages resume too: the same request continues an interrupted attempt.
        """
        return command_of(self.run, self.overrides, self.request)

    def as_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "overrides": list(self.overrides),
            "begun": self.started,
            "command": self.command,
            "record": f"{self.record}",
        }


def command_of(run: str, overrides: Sequence[str], request: Mapping[str, Any]) -> str:
    """The command line of a request as a record has it."""
    arguments = ["repro", "run", request.get("run") or run]
    arguments += [argument for value in overrides for argument in ("--set", value)]
    arguments += ["--from", request["from_stage"]] if request.get("from_stage") else []
    arguments += [argument for stage in request.get("force", ()) for argument in ("--force", stage)]
    arguments += ["--until", request["until"]] if request.get("until") else []
    arguments += ["--site", request["site"]] if request.get("site", "local") != "local" else []
    return shlex.join(arguments)


def unfinished(site: Site) -> list[InterruptedRun]:
    """Interrupted runs of this machine that were not resumed since, newest first.

    Runs with different overrides or a different ``--until`` are different runs. A run with forced stages also resumes
    an interrupted run without them, but not the reverse, because the forced stages may already exist.
    """
    newest: dict[tuple[object, ...], dict[tuple[object, ...], tuple[InterruptedRun, str]]] = {}
    for found, outcome in sorted(_read_records(site), key=lambda each: each[0].started):
        request = found.request
        same = newest.setdefault((found.run, found.overrides, request.get("until", "")), {})
        forced = (request.get("from_stage", ""), *request.get("force", ()))
        if any(forced):
            same.pop(("",), None)
        same[forced] = found, outcome
    interrupted = [found for same in newest.values() for found, outcome in same.values() if outcome == KILLED]
    return sorted(interrupted, key=lambda found: found.started, reverse=True)


def attempt_to_resume(
    site: Site, run: str, request: Mapping[str, Any], *, again: bool = False
) -> InterruptedRun | None:
    """The newest record of ``run`` with the same request if that run was interrupted, else None.

    ``again``: the caller retries that flow run, so the run has ended in any case, and a failed one is resumed too.
    """
    wanted = {name: request[name] for name in records.REQUEST_FIELDS} | {"force": list(request["force"])}
    same = [
        (found, outcome)
        for found, outcome in _read_records(site, records.record_folder(run))
        if found.request == wanted and found.overrides == tuple(request["overrides"])
    ]
    if not same:
        return None
    found, outcome = max(same, key=lambda each: each[0].started)
    return found if outcome == KILLED or (again and outcome != FINISHED) else None


def close_dead_runs(site: Site) -> int:
    """Close the runs that dead processes left "Running" at Prefect's server, in MLflow and in records.

    Returns the number of runs. A run with work calls it when it starts, one without work if a run of its name was
    killed, a worker when a flow's process was killed; `repro unfinished --close` and `repro up` do too. If a server
    does not answer, the next call closes its runs.
    """
    closed = close_abandoned(FLOWS) if server_configured() else 0
    return max(closed, _close_records(site))


def may_close_again(site: Site) -> bool:
    """Whether no call failed lately, as it does while MLflow is away: a run without work need not wait for that."""
    try:
        # Either way, since a clock that was set back leaves a time in the future.
        return abs(time.time() - _failed_file(site).stat().st_mtime) > RETRY_SECONDS
    except OSError:
        return True


def has_dead_record(site: Site, run: str) -> bool:
    """Whether a record of ``run`` says RUNNING although its process is dead."""
    return any(_is_dead(found, outcome) for found, outcome in _read_records(site, records.record_folder(run)))


def _close_records(site: Site) -> int:
    dead = [found for found, outcome in _read_records(site) if _is_dead(found, outcome)]
    if not dead:
        return 0
    from infra.tracking.client import end_abandoned

    failed = _failed_file(site)
    with suppress(OSError):
        write_atomically(failed, "")
    try:
        end_abandoned(site.tracking)
        store = open_store(site)
        for found in dead:
            records.set_outcome(found.record, KILLED)
            store.send(found.record)
    except (Fault, OSError):
        return 0
    except Exception as error:
        if not type(error).__module__.startswith(("mlflow", "sqlalchemy", "requests")):
            raise
        return 0
    failed.unlink(missing_ok=True)
    return len(dead)


def _failed_file(site: Site) -> Path:
    """Exists after a call that failed or was cut off; its time is when that began."""
    return site.root / "stamps" / "closing-failed"


def _read_records(site: Site, folder: str = "runs/*") -> Iterator[tuple[InterruptedRun, str]]:
    """Yield each record with its outcome, which is KILLED if the record says RUNNING and its process is dead."""
    for path in site.root.glob(f"{folder}/*.json"):
        header = records.read_header(path)
        if not header:
            continue
        outcome = header["outcome"]
        if outcome == RUNNING and process_state(header.get("process", "")) == "gone":
            outcome = KILLED
        overrides, request = tuple(header["overrides"]), header.get("asked", {})
        yield InterruptedRun(header["run"], overrides, request, path.stem, path, header.get("attempt", "")), outcome


def _is_dead(found: InterruptedRun, outcome: str) -> bool:
    """Whether the record itself still says RUNNING."""
    return outcome == KILLED and records.read_header(found.record).get("outcome") == RUNNING
