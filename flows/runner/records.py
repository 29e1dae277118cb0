"""Writes records of runs: one JSON file for each start under ``<root>/runs/<name>/``; ``recorded_runs`` reads them."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from infra.guards.path_names import file_name
from infra.processes.identity import process_identity
from infra.store.files import sync, write_atomically
from infra.store.store import Store
from infra.tracking.provenance import commit, user
from tasks.engine.limits import Check
from tasks.engine.planner import StageResult

REQUEST_FIELDS = ("run", "from_stage", "until", "force", "site")
"""The fields of a request that its record holds under ``asked``. The overrides are a field of their own."""
NAME_FORMAT = "%Y%m%dT%H%M%S-%f"
"""Format of the start time (UTC) that names a record: names sort by time."""
FILE_NAME = re.compile(r"\d{8}T\d{6}-\d{6}\.json")
"""Name of a record. Other files in the folder compare rows of the paper; earlier versions also compared seeds."""
RUNNING = "RUNNING"
KILLED = "KILLED"
FINISHED = "FINISHED"
"""Outcomes that decide what is resumed and what is kept."""


def start_time(root: Path, name: str) -> datetime:
    """Choose the start time for a new record of the run: now, but later than every existing record.

    If the clock was set back, an older record has a date in the future. It would otherwise stay the newest one, and a
    killed run would be listed for ever.
    """
    now = datetime.now(UTC)
    newest = max((path.stem for path in record_files(root, name)), default="")
    if newest > f"{now:{NAME_FORMAT}}":
        with suppress(ValueError, OverflowError):  # a file that this module did not write
            # The second term separates two runs that start at the same time.
            later = timedelta(microseconds=1 + now.microsecond)
            return datetime.strptime(newest, NAME_FORMAT).replace(tzinfo=UTC) + later
    return now


def write(
    root: Path,
    name: str,
    request: Mapping[str, Any],
    rows: Sequence[StageResult],
    outcome: str,
    started: datetime,
    attempt: str = "",
    failure: str = "",
    checks: Sequence[Check] = (),
    group: str = "",
    title: str = "",
) -> Path:
    """Write the record of the run that began at ``started``, over an earlier record of it; return the file.

    ``RecordedRun`` documents the fields. The record names the calling process as the process of the run.
    """
    record = {
        "run": name,
        "overrides": list(request["overrides"]),
        "outcome": outcome,
        "failure": failure,
        "ended": "" if outcome == RUNNING else datetime.now(UTC).isoformat(timespec="seconds"),
        "who": user(),
        "commit": commit(),
        "process": process_identity(),
        "asked": {name: request[name] for name in REQUEST_FIELDS},
        "attempt": attempt,
        **({"group": group, "title": title} if group else {}),
        "checks": list({check.limit: _check_form(check) for check in checks}.values()),
        "stages": [_stage_form(row) for row in rows],
    }
    path = record_file(root, name, started)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, _as_text(record))
    for folder in (path.parent, path.parents[1], root):  # a crash may lose a name that is not synced
        sync(folder)
    return path


def _stage_form(row: StageResult) -> dict[str, Any]:
    """Convert a stage for the record; omits empty ``failures``."""
    form = {name: getattr(row, name) for name in ("stage", "item", "key", "state", "seconds", "form")}
    return form | ({"failures": list(row.failures)} if row.failures else {})


def _check_form(check: Check) -> dict[str, Any]:
    limit = check.limit
    form = {"place": limit.place, "limit": limit.text, "bound": limit.bound, "warns": limit.warns}
    return {**form, "value": check.value, "holds": check.holds}


def change(path: Path, **fields: str) -> None:
    """Replace fields of a record, or add them before its stages, so that they belong to the header."""
    write_atomically(path, _as_text({**fields, **json.loads(path.read_bytes()), **fields}))


def write_paper(path: Path, pages: Mapping[str, str], results: Mapping[str, Any]) -> None:
    """Write the results of rows of the paper over earlier ones: ``pages`` by suffix, and JSON, named like ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    form = _as_text({**results, "who": user(), "commit": commit()})
    for suffix, text in {**pages, ".json": form}.items():
        write_atomically(path.with_suffix(suffix), text)


def record_folder(name: str) -> str:
    """Return the folder of a run's records, relative to the root."""
    return f"runs/{file_name(name)}"


def receive_records(store: Store, name: str = "") -> None:
    """Fetch the records of a run, or of all runs for "", that other machines sent."""
    store.fetch_newer(record_folder(name) if name else "runs")


def record_files(root: Path, name: str = "") -> list[Path]:
    """List the records of a run, or of all runs for "", the newest first."""
    found = root.glob(f"{record_folder(name) if name else 'runs/*'}/*.json")
    return sorted(filter(lambda path: FILE_NAME.fullmatch(path.name), found), key=lambda path: path.name, reverse=True)


def record_file(root: Path, name: str, started: datetime) -> Path:
    """Return the path of the record of the run that began at ``started``."""
    return root / record_folder(name) / f"{started:{NAME_FORMAT}}.json"


def _as_text(record: Mapping[str, Any]) -> str:
    return json.dumps(record, indent=1, ensure_ascii=False)
