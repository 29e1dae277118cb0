"""Finds and closes runs that were interrupted because their process or machine died."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from flows.runner import records
from flows.runner.recorded_runs import RecordedRun, last_sign, read_headers, with_stages
from flows.runner.records import FINISHED, KILLED
from flows.runs.overrides import by_path
from infra.errors import Fault
from infra.processes.identity import process_state
from infra.servers.environment import server_configured
from infra.servers.prefect_states import close_abandoned
from infra.site import Site, open_store

FLOWS = ("reproduce", "paper", "sweep", "check")
"""The flows of ``flows.orchestration``."""


def unfinished(site: Site) -> list[RecordedRun]:
    """List interrupted runs of this machine that were neither resumed nor forgotten since, newest first.

    Runs with different overrides or a different ``--until`` are different runs. A run with forced stages also resumes
    an interrupted run without them, but not the reverse, because the forced stages may already exist.
    """
    newest: dict[tuple[object, ...], dict[tuple[object, ...], RecordedRun]] = {}
    for record in [*read_headers(site.root)][::-1]:
        same = newest.setdefault((record.run, record.overrides, record.asked.get("until", "")), {})
        forced = (record.asked.get("from_stage", ""), *record.asked.get("force", ()))
        if any(forced):
            same.pop(("",), None)
        same[forced] = record
    left = [record for same in newest.values() for record in same.values()]
    interrupted = [record for record in left if record.outcome == KILLED and not record.is_closed]
    return sorted(interrupted, key=lambda record: record.started, reverse=True)


def same_requests(site: Site, run: str, request: Mapping[str, Any]) -> Iterator[RecordedRun]:
    """Yield the records of the same request of ``run``, newest first; reads no more than are taken."""
    wanted = {name: request[name] for name in records.REQUEST_FIELDS} | {"force": list(request["force"])}
    overrides = by_path(request["overrides"])
    headers = read_headers(site.root, run)
    return (each for each in headers if (each.asked, by_path(each.overrides)) == (wanted, overrides))


def attempt_to_resume(site: Site, run: str, request: Mapping[str, Any]) -> RecordedRun | None:
    """Return the newest record of the same request of ``run`` if it was interrupted or failed, else None.

    A run that broke a limit of ``expect`` is complete: it would fail again at once. A run of which this machine cannot
    tell whether it lives is resumed: it may have been one of a container that was restarted. If it does live, the locks
    of the stages keep the two apart; over a bucket both do the work.
    """
    record = next(same_requests(site, run, request), None)
    if record is None or record.outcome == FINISHED:
        return None
    if record.outcome == records.RUNNING and process_state(record.process) == "alive":
        return None
    return None if any(not check["holds"] and not check["warns"] for check in record.checks) else record


def forget(site: Site, interrupted: Iterable[RecordedRun]) -> None:
    """Take interrupted runs off the list of ``unfinished``. The same requests still resume them."""
    store = open_store(site)
    for record in interrupted:
        records.change(record.path, closed=datetime.now(UTC).isoformat(timespec="seconds"))
        store.share(record.path)


def close_dead_runs(site: Site) -> int:
    """Close the flow runs, task runs, MLflow runs and records that dead processes left "Running".

    Also closes MLflow runs without a record: `repro gap`, `repro score` and groups. Returns the number of runs. Callers
    are each run with work at its start, a worker after a flow's process was killed, `repro status --close` and
    `repro up`. If a server does not answer, the next call closes its runs.
    """
    closed = close_abandoned(FLOWS) if server_configured() else 0
    return max(closed, _close_records(site))


def _close_records(site: Site) -> int:
    killed = (record for record in read_headers(site.root) if record.is_open and record.outcome == KILLED)
    dead = [*filter(None, map(with_stages, killed))]
    from infra.tracking.client import end_abandoned, mlflow_errors

    try:
        ended = end_abandoned(site.tracking)
        store = open_store(site)
        for record in dead:
            last = last_sign(store, record).isoformat(timespec="seconds")
            records.change(record.path, outcome=KILLED, failure=record.failure, ended=last)
            store.share(record.path)
    except Fault:
        return 0
    except mlflow_errors():
        return 0
    return len(dead) or min(ended, 1)
