"""The runs on record: what was asked and by whom, what was cached, what failed and why, what was tried again.

Every start of a run is one record. ``attempt`` counts the starts of one request until it finished. Writes nothing.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flows.runner import records
from flows.runner.interrupted import KILLED, RUNNING, command_of
from flows.runs.titles import SEPARATOR
from infra.processes.identity import process_state
from infra.store.local import Store


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


@dataclass(frozen=True)
class RecordedRun:
    """One start of a run."""

    run: str
    overrides: tuple[str, ...]
    outcome: str
    """FINISHED, FAILED, KILLED, PRUNED or RUNNING."""
    failure: str
    """Which stage failed, and why, or why it was pruned; "" in records from before it was written."""
    who: str
    commit: str
    asked: Mapping[str, Any]
    """The fields of its request: ``flows.runner.records.REQUEST_FIELDS``."""
    started: datetime
    ended: datetime | None
    """None while it runs, where it was killed, and in records from before it was written."""
    stages: tuple[RecordedStage, ...]
    path: Path
    group: str = ""
    """``sweep demo-3f2a91``, ``paper-demo-scale8``; "" for a run of its own and in older records."""
    title: str = ""
    """What it is in its group: ``trial 2 · p_drop 0.2``."""
    checks: tuple[Mapping[str, Any], ...] = ()
    """Of its limits: ``place`` (``score dev bleu``), ``limit``, ``bound``, ``warns``, ``value``, ``holds``."""
    attempt: int = field(default=1)
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


def read_history(store: Store, run: str = "", since: datetime | None = None) -> list[RecordedRun]:
    """The starts of runs, newest first: of one run, or all for ""; those that began at ``since`` or later.

    A record that cannot be read is left out. Earlier starts count for ``attempt`` whatever ``since`` is.
    """
    store.receive(records.record_folder(run) if run else "runs")
    folder = records.record_folder(run) if run else "runs/*"
    paths = sorted(store.root.glob(f"{folder}/*.json"), key=lambda path: path.name)
    attempts: dict[tuple[Any, ...], int] = {}
    found = []
    for path in paths:
        header = records.read_header(path)
        started = _start_of(path)
        if not header or started is None:
            continue
        attempt, outcome = _count(attempts, header), _outcome(header)
        if since is None or started >= since:
            found += [replace(each, attempt=attempt, outcome=outcome) for each in _read(path, started)]
        if outcome in ("FINISHED", "PRUNED"):
            attempts.pop(_request(header), None)
    return found[::-1]


def _count(attempts: dict[tuple[Any, ...], int], header: Mapping[str, Any]) -> int:
    request = _request(header)
    attempts[request] = attempts.get(request, 0) + 1
    return attempts[request]


def _request(header: Mapping[str, Any]) -> tuple[Any, ...]:
    """What was asked. The first start is found again by it."""
    asked = header.get("asked", {})
    fields = (json.dumps(asked.get(name)) for name in records.REQUEST_FIELDS)
    return (header.get("run"), *header.get("overrides", ()), None, *fields)


def _outcome(header: Mapping[str, Any]) -> str:
    """The outcome of a record; KILLED where it says RUNNING and the process is gone."""
    gone = header["outcome"] == RUNNING and process_state(f"{header.get('process', '')}") == "gone"
    return KILLED if gone else f"{header['outcome']}"


def _start_of(path: Path) -> datetime | None:
    """The start that the name of a record has; None for a file of another kind."""
    try:
        return datetime.strptime(path.stem, records.NAME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None


def _read(path: Path, started: datetime) -> Iterator[RecordedRun]:
    try:
        record = json.loads(path.read_text())
        ended = record.get("ended", "")
        yield RecordedRun(
            run=record["run"],
            overrides=tuple(record["overrides"]),
            outcome=record["outcome"],
            failure=record.get("failure", ""),
            who=record.get("who", ""),
            commit=record.get("commit", ""),
            asked=record.get("asked", {}),
            started=started,
            ended=datetime.fromisoformat(ended) if ended else None,
            stages=tuple(_stage(row) for row in record["stages"]),
            path=path,
            group=record.get("group", ""),
            title=record.get("title", ""),
            checks=tuple(record.get("checks", ())),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return


def _stage(row: Mapping[str, Any]) -> RecordedStage:
    failures, gpu_kwh = tuple(row.get("failures", ())), row.get("gpu_kwh")
    return RecordedStage(row["stage"], row["item"], row["key"], row["state"], row["seconds"], failures, gpu_kwh)
