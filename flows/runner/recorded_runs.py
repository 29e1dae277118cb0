"""Reads the records of runs. Skips a record that cannot be read, with one warning.

A record of an older version lacks fields; an edited record may have any. Optional fields have a default here. A record
without the required fields (run, overrides, outcome, stages) cannot be used.
"""

import json
import logging
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Any

from flows.runner import records
from flows.runner.find_run import find_run, is_file
from flows.runner.records import FINISHED, KILLED, NAME_FORMAT, REQUEST_FIELDS, RUNNING, record_files
from flows.runs.overrides import SEPARATOR, as_options, warn_once
from infra.errors import INTERRUPTED, BadConfiguration, BadData
from infra.processes.identity import process_state
from infra.store.files import raise_unless_damage
from infra.store.store import Store

log = logging.getLogger(__name__)
SWEEP = "sweep "
"""Prefix of a trial's group."""
WAS_INTERRUPTED = "was interrupted"
DIED = "its process ended without a word, as by `kill -9` (signal 9), for want of memory, or with its machine"
"""Records store this sentence and ``end`` compares it: do not change it."""
TEXTS = "a list of texts"
NUMBER = (int, float)
RUN_FORM = {"run": str, "overrides": TEXTS, "outcome": str, "asked": dict, "checks": list}
TEXT_FIELDS = ("failure", "ended", "who", "commit", "process", "attempt", "group", "title", "closed")
RUN_DEFAULTS: Mapping[str, Any] = {"asked": {}, "checks": [], **dict.fromkeys(TEXT_FIELDS, "")}
"""Defaults of fields that older records or headers may lack."""
REQUEST_FORM = {name: TEXTS if name == "force" else str for name in REQUEST_FIELDS}
CHECK_FORM = {"place": str, "limit": str, "bound": NUMBER, "warns": int, "value": (*NUMBER, NoneType), "holds": int}
STAGE_FORM = {"stage": str, "item": str, "key": str, "state": str, "seconds": NUMBER, "failures": TEXTS}
STAGE_DEFAULTS: Mapping[str, Any] = {"seconds": 0.0, "failures": []}


class UnreadableRecord(BadData):
    """A file under ``runs/`` that does not name its run, outcome or stages."""


@dataclass(frozen=True)
class RecordedStage:
    """One stage of a run on record."""

    stage: str
    item: str
    key: str
    state: str
    """``cached``, ``completed``, ``failed``; while the run is at work also ``miss``, ``waits``."""
    seconds: float
    failures: tuple[str, ...]
    """Why each failed try failed. The stage was tried again after each, except perhaps the last."""

    @property
    def label(self) -> str:
        return f"{self.stage} {self.item}".strip()

    @property
    def was_made(self) -> bool:
        return self.state == "completed"

    @property
    def tried_again_after(self) -> tuple[str, ...]:
        return self.failures if self.was_made else self.failures[:-1]

    @property
    def was_cached(self) -> bool:
        return self.state in ("cached", "hit")  # earlier releases wrote hit

    @property
    def has_artifact(self) -> bool:
        return self.was_made or self.was_cached


@dataclass(frozen=True)
class RecordedRun:
    """One start of a run."""

    run: str
    overrides: tuple[str, ...]
    outcome: str
    """FINISHED, FAILED, KILLED or RUNNING; earlier releases also wrote PRUNED. A RUNNING record counts as KILLED once
    its process is gone."""
    failure: str
    """Which stage failed, and why."""
    who: str
    commit: str
    asked: Mapping[str, Any]
    """The fields of its request: ``flows.runner.records.REQUEST_FIELDS``."""
    started: datetime
    ended: datetime | None
    """None while it runs, after a kill, and in old records."""
    path: Path
    forced_attempt: str
    """The attempt that its forced stages belong to."""
    process: str
    """The identity of the process that runs it (``infra.processes.identity``)."""
    is_open: bool
    """Whether the file says RUNNING; a KILLED run with such a file was never closed."""
    group: str = ""
    """``sweep demo-3f2a91``, ``paper-demo-scale8``; "" for a run of its own and in older records."""
    title: str = ""
    """Its name in the group: ``trial 2 · p_drop 0.2``."""
    is_closed: bool = False
    """Whether `repro status --close` removed it from the list of interrupted runs."""
    checks: tuple[Mapping[str, Any], ...] = ()
    """The checks of its limits (``CHECK_FORM``), for example at the place ``score dev bleu``."""
    stages: tuple[RecordedStage, ...] = ()
    """Empty if only the header was read (``read_headers``)."""
    start_number: int = 1
    """1 for the first start of a request, 2 for the start after an unfinished one, and so on."""

    @property
    def end(self) -> str:
        """The outcome to show: STOPPED in place of KILLED after an orderly end by `repro stop` or Ctrl-C."""
        return "STOPPED" if self.outcome == KILLED and self.failure != DIED else self.outcome

    @property
    def full_name(self) -> str:
        """Its name with its overrides: ``demo --set training.seed=2``."""
        return f"{self.run}{as_options(self.overrides)}"

    @property
    def pid(self) -> str:
        """The process id; "" in older records."""
        return "".join(self.process.split("/")[3:4])

    @property
    def command(self) -> str:
        """The command line of the same request."""
        return command_of(self.run, self.overrides, self.asked)

    @property
    def part(self) -> str:
        """``trial 2 of sweep demo-3f2a91``; "" for a run of its own."""
        return f"{self.title.partition(SEPARATOR)[0]} of {self.group}" if self.group else ""

    @property
    def is_trial(self) -> bool:
        """Whether a sweep started it."""
        return self.group.startswith(SWEEP)

    @property
    def seconds(self) -> float:
        """Total time of the stages that this run made or tried; parallel stages count separately."""
        return sum(stage.seconds for stage in self.stages if not stage.was_cached)

    @property
    def age(self) -> float:
        """Seconds from its start to its end, or to now."""
        return ((self.ended or datetime.now(UTC)) - self.started).total_seconds()

    def as_json(self) -> dict[str, Any]:
        names = ("run", "outcome", "failure", "start_number", "group", "title", "who", "commit", "command")
        return {name: getattr(self, name) for name in names} | {
            "overrides": list(self.overrides),
            "started": self.started.isoformat(),
            "ended": self.ended.isoformat() if self.ended else "",
            "seconds": round(self.seconds, 3),
            "checks": [dict(check) for check in self.checks],
            "stages": [{**vars(stage), "failures": list(stage.failures)} for stage in self.stages],
            "record": f"{self.path}",
        }


def failure_text(failure: str) -> str:
    """Describe a failure: ``failed: …``, or WAS_INTERRUPTED after Ctrl-C or SIGTERM (in older records an exception)."""
    is_signal = failure.startswith((INTERRUPTED, "KeyboardInterrupt", "SystemExit"))
    return WAS_INTERRUPTED if is_signal else f"failed: {failure}"


def command_of(run: str, overrides: Sequence[str], request: Mapping[str, Any]) -> str:
    """Write the command line of a recorded request."""
    arguments = ["repro", "run", request.get("run") or run]
    arguments += [argument for value in overrides for argument in ("--set", value)]
    arguments += ["--from", request["from_stage"]] if request.get("from_stage") else []
    arguments += [argument for stage in request.get("force", ()) for argument in ("--force", stage)]
    arguments += ["--until", request["until"]] if request.get("until") else []
    arguments += ["--site", request["site"]] if request.get("site", "local") != "local" else []
    return shlex.join(arguments)


def read_headers(root: Path, name: str = "") -> Iterator[RecordedRun]:
    """Read the starts of a run, or of all runs for "", newest first, without their possibly long stages."""
    return _readable(root, name, read_header)


def read_runs(root: Path, name: str = "") -> Iterator[RecordedRun]:
    """Read the starts of a run, or of all runs for "", newest first."""
    return _readable(root, name, read_run)


def with_stages(header: RecordedRun) -> RecordedRun | None:
    """Read the same record with its stages; None, after one warning, if they cannot be read."""
    return _or_none(read_run, header.path)


def read_header(path: Path) -> RecordedRun:
    """Read a record without its stages. Raises UnreadableRecord."""
    whole = _text(path)
    before, found, _ = whole.partition(b'\n "stages"')
    return _parsed(path, _fields(path, before.rstrip().rstrip(b",") + b"}" if found else whole))


def read_run(path: Path) -> RecordedRun:
    """Read a record with its stages. Raises UnreadableRecord."""
    fields = _fields(path, _text(path))
    try:
        rows = [_typed(row, STAGE_FORM, STAGE_DEFAULTS) for row in _typed(fields, {"stages": list})["stages"]]
    except (KeyError, TypeError) as error:
        raise _unreadable(path, error) from error
    stages = tuple(RecordedStage(**{**row, "failures": tuple(row["failures"])}) for row in rows)
    return replace(_parsed(path, fields), stages=stages)


def read_history(store: Store, run: str = "", since: datetime | None = None) -> list[RecordedRun]:
    """Read the starts of one run, or of all for "", from ``since`` on, newest first, with ``start_number``.

    ``start_number`` also counts starts before ``since``.
    """
    records.receive_records(store, run)
    starts: dict[tuple[Any, ...], int] = {}
    history = []
    for header in [*read_headers(store.root, run)][::-1]:
        fields = (json.dumps(header.asked.get(name)) for name in REQUEST_FIELDS)
        request = (header.run, header.overrides, *fields)
        starts[request] = starts.get(request, 0) + 1
        whole = with_stages(header) if since is None or header.started >= since else None
        if whole:
            is_dead = whole.is_open and whole.outcome == KILLED
            ended = last_sign(store, whole) if is_dead else whole.ended
            history.append(replace(whole, start_number=starts[request], ended=ended))
        if header.outcome in (FINISHED, "PRUNED"):
            starts.pop(request)
    return history[::-1]


def with_overrides(starts: Iterable[RecordedRun], overrides: Sequence[str]) -> list[RecordedRun]:
    """Choose the starts with exactly these overrides; if there are none, those with further overrides.

    An empty override, as of ``--set ''``, asks for starts without overrides.
    """
    wanted = tuple(filter(None, overrides))
    found = [each for each in starts if {*wanted} <= {*each.overrides}]
    exact = [each for each in found if overrides and each.overrides == wanted]
    return exact if exact or (overrides and not wanted) else found


def last_sign(store: Store, start: RecordedRun) -> datetime:
    """Return when a dead start last wrote its record or a file of an unfinished stage."""
    unmade = [each for each in start.stages if not each.has_artifact]
    folders = [folder for each in unmade for folder in store.unfinished_folders(each.stage, each.key)]
    times = [start.started.timestamp()]
    for path in (start.path, *(path for folder in folders for path in folder.glob("*"))):
        with suppress(OSError):  # another start may resume it now
            times.append(path.stat().st_mtime)
    return datetime.fromtimestamp(max(times), UTC)


def run_names(root: Path) -> list[str]:
    """List the runs that have a readable record."""
    return sorted({each.run for each in read_headers(root)})


def findable(name: str, root: Path) -> str:
    """Return the words by which ``find_run`` finds a run: its name, else, with a warning, the file in a record."""
    if is_file(name) or is_name(name, name):
        return name
    asked: list[str] = [*dict.fromkeys(each.asked.get("run", name) for each in read_headers(root, name))]
    if found := next((each for each in asked if is_name(each, name)), ""):
        warn_once(f"the run {name} is taken from {found}")
    elif asked:
        warn_once(f"the run {name} was asked for as {asked[0]}, which means no run of this name in this folder")
    return found or name


def is_name(words: str, name: str) -> bool:
    """Whether the words find the run of this name."""
    with suppress(BadConfiguration):
        return find_run(words).name == name
    return False


def starts_to_compare(root: Path, name: str, overrides: Sequence[str]) -> Iterator[RecordedRun]:
    """Read the run's starts, newest first: those with exactly these overrides, then the others."""
    headers = sorted(read_headers(root, name), key=lambda each: each.overrides != tuple(overrides))
    return filter(None, map(with_stages, headers))


def arguments_of(start: RecordedRun) -> dict[tuple[str, str], Any]:
    """Return the arguments of each (stage, item) in the record of a start."""
    rows = _fields(start.path, _text(start.path))["stages"]
    return {(row["stage"], row.get("item", "")): row["form"] for row in rows if isinstance(row.get("form"), dict)}


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
        raise_unless_damage(error, path)
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
        found = _typed(fields, {**RUN_FORM, **dict.fromkeys(TEXT_FIELDS, str)}, RUN_DEFAULTS)
        _typed(found["asked"], {name: REQUEST_FORM[name] for name in found["asked"] if name in REQUEST_FORM})
        outcome = found["outcome"]
        is_gone = outcome == RUNNING and process_state(found["process"]) == "gone"
        as_they_are = ("run", "who", "commit", "asked", "process", "group", "title")
        return RecordedRun(
            **{name: found[name] for name in as_they_are},
            overrides=tuple(found["overrides"]),
            outcome=KILLED if is_gone else outcome,
            failure=found["failure"] or (DIED if is_gone else ""),
            started=datetime.strptime(path.stem, NAME_FORMAT).replace(tzinfo=UTC),
            ended=datetime.fromisoformat(found["ended"]) if found["ended"] else None,
            path=path,
            forced_attempt=found["attempt"],
            is_open=outcome == RUNNING,
            is_closed=bool(found["closed"]),
            checks=tuple(_typed(check, CHECK_FORM) for check in found["checks"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> UnreadableRecord:
    why = f"the field {error} is missing" if isinstance(error, KeyError) else f"{error}"
    return UnreadableRecord(f"{path} cannot be read as the record of a run: {why}")


def _typed(fields: Any, form: Mapping[str, Any], defaults: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Return the fields that ``form`` names. Raises TypeError for a wrong type, KeyError for a missing field."""
    if not isinstance(fields, dict):
        raise TypeError(f"{fields!r:.40} is no JSON object")
    found = {name: fields[name] if name in fields or name not in defaults else defaults[name] for name in form}
    for name, value in found.items():
        kind = list if form[name] is TEXTS else form[name]
        if not isinstance(value, kind) or (form[name] is TEXTS and not all(isinstance(each, str) for each in value)):
            raise TypeError(f"the field {name!r} is {value!r}, allowed is {form[name]}")
    return found
