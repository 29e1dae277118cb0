"""The runs on record, read in this one place: a record that cannot be read is skipped with one warning.

A record of an older version lacks fields, one that somebody edited may have any. What is optional has a default here;
without the rest, a run, its overrides, its outcome and its stages, a file says nothing of a run.
"""

import json
import logging
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from flows.runner.records import KILLED, NAME_FORMAT, REQUEST_FIELDS, RUNNING, record_files
from flows.runs.overrides import SEPARATOR
from infra.errors import BadData
from infra.processes.identity import process_state

log = logging.getLogger(__name__)
EARLIER_VALUES = 30
SWEEP = "sweep "
"""Begins the group of a trial."""
TEXT_FIELDS = ("failure", "ended", "who", "commit", "process", "attempt", "group", "title")
"""Fields that older records may lack; each is then ""."""
CHECK_FIELDS = ("place", "limit", "bound", "warns", "value", "holds")


class UnreadableRecord(BadData):
    """A file under ``runs/`` that does not say of which run it is the record, or with what outcome or stages."""


@dataclass(frozen=True)
class RecordedStage:
    """One stage of a run on record."""

    stage: str
    item: str
    key: str
    state: str
    """``cached``, ``completed``, ``failed``, ``pruned``; while the run is at work also ``hit``, ``miss``, ``waits``."""
    seconds: float
    failures: tuple[str, ...]
    """Why each failed try failed; the stage was tried again after all but perhaps the last."""
    gpu_kwh: float | None
    """Energy of the GPUs of a training that this run made, where their driver reports it."""

    @property
    def label(self) -> str:
        return f"{self.stage} {self.item}".strip()

    @property
    def was_made(self) -> bool:
        return self.state == "completed"

    @property
    def was_cached(self) -> bool:
        return self.state in ("cached", "hit")

    @property
    def has_artifact(self) -> bool:
        return self.was_made or self.was_cached


@dataclass(frozen=True)
class RecordedRun:
    """One start of a run."""

    run: str
    overrides: tuple[str, ...]
    outcome: str
    """FINISHED, FAILED, KILLED, PRUNED or RUNNING; KILLED also where the process of a RUNNING one is gone."""
    failure: str
    """Which stage failed, and why, or why it was pruned."""
    who: str
    commit: str
    asked: Mapping[str, Any]
    """The fields of its request: ``flows.runner.records.REQUEST_FIELDS``."""
    started: datetime
    ended: datetime | None
    """None while it runs, where it was killed, and in records from before it was written."""
    path: Path
    forced_attempt: str
    """The attempt that its forced stages belong to."""
    is_open: bool
    """Whether the file says that it runs: if its ``outcome`` is KILLED, nobody closed it."""
    group: str = ""
    """``sweep demo-3f2a91``, ``paper-demo-scale8``; "" for a run of its own and in older records."""
    title: str = ""
    """What it is in its group: ``trial 2 · p_drop 0.2``."""
    checks: tuple[Mapping[str, Any], ...] = ()
    """Of its limits: ``CHECK_FIELDS``, for example the place ``score dev bleu``."""
    stages: tuple[RecordedStage, ...] = ()
    """Empty where only the header was read (``read_headers``)."""
    attempt: int = 1
    """1 for the first start of a request, 2 if it is repeated after one that did not finish, and so on."""

    @property
    def command(self) -> str:
        """The command line that asks for the same."""
        return command_of(self.run, self.overrides, self.asked)

    @property
    def member(self) -> str:
        """What it is in its group, without its settings: ``trial 2``."""
        return self.title.partition(SEPARATOR)[0]

    @property
    def part(self) -> str:
        """``trial 2 of sweep demo-3f2a91``; "" for a run of its own."""
        return f"{self.member} of {self.group}" if self.group else ""

    @property
    def is_trial(self) -> bool:
        """Whether a sweep started it."""
        return self.group.startswith(SWEEP)

    @property
    def seconds(self) -> float:
        """Time of the stages that this run made or tried; stages that ran at the same time count each."""
        return sum(stage.seconds for stage in self.stages if not stage.was_cached)

    @property
    def gpu_kwh(self) -> float | None:
        """Energy of the GPUs of its trainings; None where none was measured."""
        found = [stage.gpu_kwh for stage in self.stages if stage.was_made and stage.gpu_kwh is not None]
        return sum(found) if found else None

    def as_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "overrides": list(self.overrides),
            "outcome": self.outcome,
            "failure": self.failure,
            "attempt": self.attempt,
            "group": self.group,
            "title": self.title,
            "who": self.who,
            "commit": self.commit,
            "command": self.command,
            "started": self.started.isoformat(),
            "ended": self.ended.isoformat() if self.ended else "",
            "seconds": round(self.seconds, 3),
            "gpu_kwh": self.gpu_kwh,
            "checks": [dict(check) for check in self.checks],
            "stages": [{**vars(stage), "failures": list(stage.failures)} for stage in self.stages],
            "record": f"{self.path}",
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


def read_headers(root: Path, name: str = "") -> Iterator[RecordedRun]:
    """The starts of a run, or of all for "", newest first and without their stages, which may be long."""
    return _readable(root, name, read_header)


def read_runs(root: Path, name: str = "") -> Iterator[RecordedRun]:
    """The starts of a run, or of all for "", newest first."""
    return _readable(root, name, read_run)


def with_stages(header: RecordedRun) -> RecordedRun | None:
    """The same record with its stages; None, after one warning, where these cannot be read."""
    return _or_none(read_run, header.path)


def read_header(path: Path) -> RecordedRun:
    """A record without its stages. Raises UnreadableRecord."""
    whole = _text(path)
    before, found, _ = whole.partition(b'\n "stages"')
    return _parsed(path, _fields(path, before.rstrip().rstrip(b",") + b"}" if found else whole))


def read_run(path: Path) -> RecordedRun:
    """A record with its stages. Raises UnreadableRecord."""
    fields = _fields(path, _text(path))
    try:
        return replace(_parsed(path, fields), stages=tuple(_stage(row) for row in _list(fields, "stages")))
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(path, error) from error


def run_names(root: Path) -> list[str]:
    """The runs that have a readable record."""
    return sorted({each.run for each in read_headers(root)})


def earlier_values(root: Path, name: str) -> dict[str, tuple[float, ...]]:
    """The values that the limits of a run had in its last ``EARLIER_VALUES`` records, oldest first, by their places."""
    found: dict[str, list[float]] = {}
    for each in [*islice(read_headers(root, name), EARLIER_VALUES)][::-1]:
        # A fact with two limits has two checks.
        for place, value in {check["place"]: check["value"] for check in each.checks}.items():
            if value is not None:
                found.setdefault(place, []).append(value)
    return {place: tuple(values) for place, values in found.items()}


def last_arguments(root: Path, name: str) -> dict[tuple[str, str], Any]:
    """The arguments of each (stage, item) in the newest record of the run; empty if there is none."""
    for each in read_runs(root, name):
        rows = _fields(each.path, _text(each.path))["stages"]
        return {(row["stage"], row.get("item", "")): row["form"] for row in rows if isinstance(row.get("form"), dict)}
    return {}


def newest_artifacts(root: Path, name: str, overrides: Sequence[str]) -> set[tuple[str, str]]:
    """Stage and key of each artifact in the newest record of the run with these overrides."""
    same = (each for each in read_runs(root, name) if each.overrides == tuple(overrides))
    newest = next(same, None)
    return {(stage.stage, stage.key) for stage in newest.stages} if newest else set()


_warned: set[Path] = set()


def _readable(root: Path, name: str, read: Callable[[Path], RecordedRun]) -> Iterator[RecordedRun]:
    found = (_or_none(read, path) for path in record_files(root, name))
    return (each for each in found if each and (each.run == name or not name))


def _or_none(read: Callable[[Path], RecordedRun], path: Path) -> RecordedRun | None:
    try:
        return read(path)
    except UnreadableRecord as unreadable:
        if path not in _warned:
            log.warning("%s; it is skipped: repair or remove it", unreadable)
        _warned.add(path)
        return None


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def _fields(path: Path, text: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise _unreadable(path, error) from error
    if not isinstance(fields, dict):
        raise _unreadable(path, TypeError("it is no JSON object"))
    return fields


def _parsed(path: Path, fields: Mapping[str, Any]) -> RecordedRun:
    try:
        optional = {name: _word(fields, name) if name in fields else "" for name in TEXT_FIELDS}
        outcome = _word(fields, "outcome")
        is_gone = outcome == RUNNING and process_state(optional["process"]) == "gone"
        return RecordedRun(
            run=_word(fields, "run"),
            overrides=tuple(_words(fields, "overrides")),
            outcome=KILLED if is_gone else outcome,
            failure=optional["failure"],
            who=optional["who"],
            commit=optional["commit"],
            asked=_asked(fields.get("asked", {})),
            started=datetime.strptime(path.stem, NAME_FORMAT).replace(tzinfo=UTC),
            ended=datetime.fromisoformat(optional["ended"]) if optional["ended"] else None,
            path=path,
            forced_attempt=optional["attempt"],
            is_open=outcome == RUNNING,
            group=optional["group"],
            title=optional["title"],
            checks=tuple(_check(check) for check in _list(fields, "checks")) if "checks" in fields else (),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> UnreadableRecord:
    why = f"the field {error} is missing" if isinstance(error, KeyError) else f"{error}"
    return UnreadableRecord(f"{path} cannot be read as the record of a run: {why}")


def _asked(fields: Any) -> Mapping[str, Any]:
    if not isinstance(fields, dict):
        raise TypeError("the field 'asked' is no JSON object")
    for name in fields.keys() & set(REQUEST_FIELDS):
        _words(fields, name) if name == "force" else _word(fields, name)
    return fields


def _check(fields: Any) -> Mapping[str, Any]:
    if not isinstance(fields, dict):
        raise TypeError("a check is no JSON object")
    value = None if fields["value"] is None else _number(fields, "value")
    words = {name: _word(fields, name) for name in ("place", "limit")}
    flags = {name: bool(fields[name]) for name in ("warns", "holds")}
    return {**words, **flags, "bound": _number(fields, "bound"), "value": value}


def _stage(fields: Any) -> RecordedStage:
    if not isinstance(fields, dict):
        raise TypeError("a stage is no JSON object")
    return RecordedStage(
        stage=_word(fields, "stage"),
        item=_word(fields, "item"),
        key=_word(fields, "key"),
        state=_word(fields, "state"),
        seconds=_number(fields, "seconds") if "seconds" in fields else 0.0,
        failures=tuple(_words(fields, "failures")) if "failures" in fields else (),
        gpu_kwh=_number(fields, "gpu_kwh") if fields.get("gpu_kwh") is not None else None,
    )


def _word(fields: Mapping[str, Any], name: str) -> str:
    if not isinstance(fields[name], str):
        raise TypeError(f"the field {name!r} is {fields[name]!r}, allowed is text")
    return str(fields[name])


def _number(fields: Mapping[str, Any], name: str) -> float:
    value: object = fields[name]
    if not isinstance(value, int | float):
        raise TypeError(f"the field {name!r} is {value!r}, allowed is a number")
    return value


def _list(fields: Mapping[str, Any], name: str) -> list[Any]:
    if not isinstance(fields[name], list):
        raise TypeError(f"the field {name!r} is {fields[name]!r}, allowed is a list")
    return list(fields[name])


def _words(fields: Mapping[str, Any], name: str) -> list[str]:
    if not all(isinstance(each, str) for each in _list(fields, name)):
        raise TypeError(f"the field {name!r} is {fields[name]!r}, allowed is a list of texts")
    return list(fields[name])
