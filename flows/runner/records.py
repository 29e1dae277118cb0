"""Records of runs: one JSON file per run under ``<root>/runs/<name>/``. A plan compares with the newest record."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from infra.processes.identity import process_identity
from infra.store.files import sync, write_atomically
from infra.tracking.provenance import commit, user
from tasks.engine.limits import Check
from tasks.engine.planner import StageResult

REQUEST_FIELDS = ("run", "from_stage", "until", "force", "site")
"""The fields of a request that its record holds under ``asked``. The overrides are a field of their own."""
NAME_FORMAT = "%Y%m%dT%H%M%S-%f"
"""The start time (UTC) in the name of a record; such names sort by time."""
SEEDS = "-seeds"
"""The end of the name of a record that compares seeds."""
Stages = list[dict[str, Any]]
Row = tuple[str, str, str, str]
"""Stage, item, key and state."""
EARLIER_VALUES = 30
T = TypeVar("T")
WITH_ARTIFACT = ("cached", "completed", "hit")
"""States of a stage that has an artifact."""


def start_time(root: Path, name: str) -> datetime:
    """The start time for a new record of the run: now, but after every existing record.

    A record from before the clock was set back is dated in the future. It would otherwise stay the newest one, and a
    killed run would be listed for ever.
    """
    now = datetime.now(UTC)
    names = (path.stem.removesuffix(SEEDS) for path in (root / record_folder(name)).glob("[0-9]*.json"))
    newest = max(names, default="")
    if newest > f"{now:{NAME_FORMAT}}":
        with suppress(ValueError, OverflowError):  # a file that this module did not write
            # Two runs that start at once differ by the second term.
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
    """Write the record of the run that ``started`` then, over an earlier record of it; returns the file.

    ``request`` holds the fields of the request, ``attempt`` is the attempt that its forced stages belong to,
    ``failure`` says which stage failed and why, ``checks`` are those of its limits, ``group`` names
    the sweep or the rows of the paper that it belongs to, where it is ``title``. The record names the calling process
    as the one that runs it.
    """
    record = {
        "run": name,
        "overrides": list(request["overrides"]),
        "outcome": outcome,
        "failure": failure,
        "ended": "" if outcome == "RUNNING" else datetime.now(UTC).isoformat(timespec="seconds"),
        "who": user(),
        "commit": commit(),
        "process": process_identity(),
        "asked": {name: request[name] for name in REQUEST_FIELDS},
        "attempt": attempt,
        **({"group": group, "title": title} if group else {}),
        "checks": list({check.limit: _check_form(check) for check in checks}.values()),
        "stages": [_stage_form(row) for row in rows],
    }
    return _write_json(root, name, started, "", record)


def _stage_form(row: StageResult) -> dict[str, Any]:
    """A stage as a record holds it; ``failures`` and ``gpu_kwh`` only where there are any."""
    form: dict[str, Any] = {"stage": row.stage, "item": row.item, "key": row.key, "state": row.state}
    form |= {"seconds": row.seconds, "form": row.form}
    form |= {"failures": list(row.failures)} if row.failures else {}
    return form | ({"gpu_kwh": row.facts["gpu_kwh"]} if "gpu_kwh" in row.facts else {})


def _check_form(check: Check) -> dict[str, Any]:
    limit = check.limit
    form = {"place": limit.place, "limit": limit.text, "bound": limit.bound, "warns": limit.warns}
    return {**form, "value": check.value, "holds": check.holds}


def earlier_values(root: Path, name: str) -> dict[str, tuple[float, ...]]:
    """The values that the limits of a run had in its last ``EARLIER_VALUES`` records, oldest first, by their places."""
    found: dict[str, list[float]] = {}
    for path in sorted((root / record_folder(name)).glob("*.json"))[-EARLIER_VALUES:]:
        # A fact with two limits has two checks.
        for place, value in {check["place"]: check["value"] for check in read_header(path).get("checks", ())}.items():
            if value is not None:
                found.setdefault(place, []).append(value)
    return {place: tuple(values) for place, values in found.items()}


def read_header(path: Path) -> dict[str, Any]:
    """The fields of a record before its stages, which may be long; empty for a broken file or one of another kind."""
    try:
        before, found, _ = path.read_bytes().partition(b'\n "stages"')
        header = json.loads(before.rstrip().rstrip(b",") + b"}") if found else {}
        return header if "outcome" in header else {}
    except (OSError, ValueError):
        return {}


def set_outcome(path: Path, outcome: str) -> None:
    """Replace the outcome of a record."""
    write_atomically(path, _as_text({**json.loads(path.read_text()), "outcome": outcome}))


def write_seeds(root: Path, name: str, overrides: Sequence[str], seeds: Mapping[str, Any]) -> Path:
    """Record the results of several seeds of a run; returns the file."""
    record = {**seeds, "overrides": list(overrides), "who": user(), "commit": commit()}
    return _write_json(root, name, datetime.now(UTC), SEEDS, record)


def write_paper(path: Path, pages: Mapping[str, str], results: Mapping[str, Any]) -> None:
    """Write the results of rows of the paper over earlier ones: ``pages`` and JSON, beside ``path`` by their suffixes.

    The record of each row's run holds its stages.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    form = _as_text({**results, "who": user(), "commit": commit()})
    for suffix, text in {**pages, ".json": form}.items():
        write_atomically(path.with_suffix(suffix), text)


def last_arguments(root: Path, name: str) -> dict[tuple[str, str], Any]:
    """The arguments of each (stage, item) in the newest readable record of the run; empty if there is none."""

    def arguments(stages: Stages) -> dict[tuple[str, str], Any]:
        return {(stage["stage"], stage["item"]): stage["form"] for stage in stages}

    return next(_read_stages(root, name, arguments), {})


def last_keys(root: Path, name: str, stage: str) -> dict[str, str]:
    """The keys of a stage by item, from the newest readable record of the run in which each item has an artifact."""

    def keys(stages: Stages) -> dict[str, str]:
        items = [each for each in stages if each["stage"] == stage]
        complete = all(each["state"] in WITH_ARTIFACT for each in items)
        return {each["item"]: each["key"] for each in items} if complete else {}

    return next(filter(None, _read_stages(root, name, keys)), {})


def newest_keys(root: Path, name: str) -> dict[tuple[str, str], str]:
    """The key of the newest artifact of each (stage, item) of the run, from its readable records (``newest_of``)."""

    def rows(stages: Stages) -> list[Row]:
        return [(each["stage"], each["item"], each["key"], each["state"]) for each in stages]

    return newest_of(_read_stages(root, name, rows))


def newest_of(newest_first: Iterable[Iterable[Row]]) -> dict[tuple[str, str], str]:
    """The key of the newest artifact of each (stage, item) in records of one run, each with its rows.

    Items of a stage that the newest record with the whole stage no longer has are left out.
    """
    found: dict[tuple[str, str], str] = {}
    whole: set[str] = set()
    for rows in newest_first:
        by_stage: dict[str, list[tuple[str, str, bool]]] = {}
        for stage, item, key, state in rows:
            by_stage.setdefault(stage, []).append((item, key, state in WITH_ARTIFACT))
        for stage in by_stage.keys() - whole:
            for item, key, made in by_stage[stage]:
                if made:
                    found.setdefault((stage, item), key)
            if all(made for _, _, made in by_stage[stage]):
                whole.add(stage)
    return found


def newest_names(root: Path, name: str, overrides: Sequence[str]) -> set[tuple[str, str]]:
    """Stage and key of each artifact in the newest readable record of the run with these overrides."""
    for path in sorted((root / record_folder(name)).glob("*.json"), reverse=True):
        if tuple(read_header(path).get("overrides", ())) == tuple(overrides):
            with suppress(OSError, ValueError, KeyError, TypeError):
                return {(row["stage"], row["key"]) for row in json.loads(path.read_text())["stages"]}
    return set()


def run_names(root: Path) -> list[str]:
    """The runs that have a readable record of stages."""
    folders = sorted(path for path in (root / "runs").glob("*") if path.is_dir())
    return [folder.name for folder in folders if next(_read_stages(root, folder.name, bool), False)]


def _read_stages(root: Path, name: str, read: Callable[[Stages], T]) -> Iterator[T]:
    """Apply ``read`` to the stages of each record of the run, newest first; skip records that it cannot read."""
    for path in sorted((root / record_folder(name)).glob("*.json"), reverse=True):
        try:
            found = read(json.loads(path.read_text())["stages"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        yield found


def record_folder(name: str) -> str:
    """The folder of a run's records, below the root."""
    return f"runs/{re.sub(r'[^A-Za-z0-9_-]+', '-', name)}"


def record_file(root: Path, name: str, started: datetime, suffix: str = "") -> Path:
    """The record of the run that ``started`` then."""
    return root / record_folder(name) / f"{started:{NAME_FORMAT}}{suffix}.json"


def _write_json(root: Path, name: str, started: datetime, suffix: str, record: Mapping[str, Any]) -> Path:
    _make_folder(root, name)
    path = record_file(root, name, started, suffix)
    write_atomically(path, _as_text(record))
    for folder in (path.parent, path.parents[1], root):  # garbage collection would miss a record that lost its name
        sync(folder)
    return path


def _make_folder(root: Path, name: str) -> Path:
    folder = root / record_folder(name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _as_text(record: Mapping[str, Any]) -> str:
    return json.dumps(record, indent=1, ensure_ascii=False)
