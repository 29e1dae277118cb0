"""Tracks a pipeline run in MLflow: a parent run, one child for each stage, and a readable description."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from infra.servers.relocation import DATABASE
from infra.servers.sqlite_addresses import sqlite_uri
from infra.tracking.client import refusals, refused
from infra.tracking.mlflow_runs import MAX_TAG_LENGTH, MlflowRuns, RunFile
from infra.tracking.run_description import SCORE_STAGE, StageRow, numeric_facts, run_description
from infra.tracking.write_queue import WriteQueue

PENDING = "later:"
"""Prefix of the temporary id of a stage that began while MLflow was unreachable."""
NOTE = "mlflow.note.content"


class Tracker:
    """Writes one pipeline run to MLflow at ``uri``, by default a SQLite file beside ``artifact_root``.

    Artifacts go below ``artifact_root`` unless a server stores them. The numbers of the stage ``score`` are also
    logged to the parent run as ``item.number``, so that a table can compare runs. A stage that begins while MLflow is
    unreachable gets a temporary id, which every method accepts. ``token`` names the parent run in its experiment: a
    later tracker with the same token continues this run.
    """

    def __init__(self, uri: str, artifact_root: Path, token: str = "") -> None:
        artifact_root = artifact_root.absolute()
        self.uri = uri or sqlite_uri(artifact_root.parent / DATABASE)
        self.run_id = ""
        self._runs = MlflowRuns(self.uri, artifact_root, token)
        self._start_parent: Callable[[], str] | None = None
        self._rows: list[StageRow] = []
        self._text = self._why = ""
        self._stages: dict[str, StageRow] = {}
        """Maps the ids from ``start_stage`` to their rows."""
        self._writes = WriteQueue(self.uri, lambda: self.client.search_experiments(max_results=1))

    @property
    def client(self) -> Any:
        """The MlflowClient; raises MLflow's errors when the store does not answer."""
        return self._runs.client

    @property
    def parent_tags(self) -> Mapping[str, str]:
        """The tags of the parent run; empty until a write has reached MLflow."""
        return self._runs.parent_tags

    def start(self, experiment: str, name: str, tags: Mapping[str, str], params: Mapping[str, Any]) -> str:
        """Begin the parent run of one pipeline run; return its id, or "" while MLflow is unreachable."""
        self._start_parent = partial(self._runs.start_parent, experiment, name, tags, params, _now_ms())
        self._writes.put("the run", self._parent)
        return self.run_id

    def describe(self, text: str) -> None:
        """Use this Markdown as the parent's description instead of its stages."""
        self._text = text
        self._writes.put("the note", self._write_note)

    def start_stage(self, stage: str, item: str, key: str, params: Mapping[str, Any], continues: bool = False) -> str:
        """Begin the child run of one stage; return its id, a temporary one while MLflow is unreachable.

        An unfinished child of the same key in this folder is reopened under the present parent, so that the curve of
        a killed training goes on. One that has a curve is left as it is unless the stage ``continues`` its work.
        """
        row = StageRow(stage, item, key, "running")
        self._rows.append(row)
        self._writes.put(row.label, partial(self._start_stage, row, params, _now_ms(), continues))
        run_id = row.run_id or f"{PENDING}{len(self._rows)}"
        self._stages[run_id] = row
        self._describe_run()
        return run_id

    def log_rows(self, run_id: str, rows: Iterable[Mapping[str, Any]], of_parent: Sequence[str] = ()) -> None:
        """Log the numbers of ``metrics.jsonl`` rows with their ``done`` and ``time``; repeated steps are dropped.

        The metrics ``of_parent`` are logged to the parent too.
        """
        waiting = self._writes.last
        if isinstance(waiting, _MetricRows) and waiting.run_id == run_id:
            waiting.rows.extend(rows)
            self._writes.flush()
        elif run_id:
            self._writes.put("metrics", _MetricRows(self, run_id, list(rows), of_parent))

    def log_files(self, run_id: str, files: Callable[[], Iterable[RunFile]]) -> None:
        """Store the result of ``files`` with the run. Calls it when MLflow answers; its errors drop the files."""
        if run_id:
            self._put("files", run_id, lambda real: self._runs.log_files(real, [*files()]))

    def file_page(self, key: str, name: str) -> str:
        """Return the address, relative to MLflow's, of a file in the run that made the artifact of ``key``; "" if none.

        Raises NetworkFault if MLflow does not answer.
        """
        with refusals(self.uri, "does not answer"):
            row = StageRow("", "", key, "", *self._runs.find_finished(key))
            stored = [each.path for each in self.client.list_artifacts(row.run_id)] if row.run_id else []
        return f"{row.page}/artifacts/{name}" if name in stored else ""

    def finish_stage(self, run_id: str, status: str, facts: Mapping[str, Any]) -> None:
        """End a child as FINISHED, FAILED or KILLED; numbers among the facts become metrics, the rest tags."""
        row = self._stages.get(run_id)
        if row and row.state == "running":
            row.state = {"FINISHED": "completed"}.get(status, status.lower())
            row.seconds = time.monotonic() - row.started
            row.facts = facts
            self._log_headline(row)
        if run_id:
            end_ms = _now_ms()
            self._put("facts", run_id, lambda real: self._runs.log_facts(real, facts))
            self._put("the end of a stage", run_id, lambda real: self.client.set_terminated(real, status, end_ms))
        self._describe_run()

    def cached(self, stage: str, item: str, key: str, facts: Mapping[str, Any], state: str = "cached") -> None:
        """Record a stage that did not run here, with a link to the run that made its artifact."""
        if self._start_parent is None:
            return
        row = StageRow(stage, item, key, state, facts=facts)
        self._rows.append(row)
        self._writes.put("a cached stage", partial(self._find_original_run, row))
        self._log_headline(row)
        self._describe_run()

    def resolve_run_id(self, run_id: str) -> str:
        """Return MLflow's id for ``run_id`` at once; raises NetworkFault while MLflow is unreachable."""
        self._writes.retry_now()
        try:
            return self._resolved_id(run_id)
        except LookupError:
            raise refused(self.uri, "does not answer") from None

    def finish(self, status: str, why: str = "") -> None:
        """End the parent as FINISHED, FAILED or KILLED. Waits for queued writes, unless KILLED.

        The description then begins with ``why``, the reason of a failure.
        """
        self._why = why
        self._describe_run()
        if self._start_parent is not None:
            end_ms = _now_ms()
            self._writes.put("the end of the run", lambda: self.client.set_terminated(self._parent(), status, end_ms))
        self._writes.flush_all(patient=status != "KILLED")

    def _put(self, what: str, run_id: str, write: Callable[[str], object]) -> None:
        """Queue a write to a run that may have only a temporary id until the write."""
        self._writes.put(what, lambda: write(self._resolved_id(run_id)))

    def _resolved_id(self, run_id: str) -> str:
        row = self._stages.get(run_id)
        real = row.run_id if row else run_id
        if not real:
            raise LookupError(f"the stage {run_id} has no run")
        return real

    def _parent(self) -> str:
        if not self.run_id:
            assert self._start_parent, "a stage is tracked after start()"
            self.run_id = self._start_parent()
        return self.run_id

    def _start_stage(self, row: StageRow, params: Mapping[str, Any], start_ms: int, continues: bool) -> None:
        row.run_id = self._runs.start_stage(self._parent(), row, params, start_ms, continues)
        row.experiment = self._runs.experiment_id

    def _log_headline(self, row: StageRow) -> None:
        numbers = {f"{row.item}.{name}": value for name, value in numeric_facts(row.facts).items()}
        if row.stage == SCORE_STAGE and numbers:
            self._writes.put("scores", lambda: self._runs.log_facts(self._parent(), numbers))

    def _find_original_run(self, row: StageRow) -> None:
        row.run_id, row.experiment = self._runs.find_finished(row.key)

    def _describe_run(self) -> None:
        if self._start_parent is not None:
            self._writes.put("the note", self._write_note)

    def _write_note(self) -> None:
        if text := self._text or run_description(self._rows, self._why):
            self.client.set_tag(self._parent(), NOTE, text[:MAX_TAG_LENGTH])


@dataclass
class RunEnd:
    """How a tracked run ends: FINISHED, FAILED or KILLED, and why."""

    status: str = "FINISHED"
    why: str = ""


@contextmanager
def ending(tracker: Tracker) -> Iterator[RunEnd]:
    """End the parent run after the block: with the yielded ``RunEnd``, FAILED by an error, KILLED by an interrupt."""
    end = RunEnd()
    try:
        yield end
    except BaseException as error:
        end.status = "FAILED" if isinstance(error, Exception) else "KILLED"
        raise
    finally:
        tracker.finish(end.status, end.why)


@dataclass
class _MetricRows:
    """Rows to log; rows can be added until the write."""

    tracker: Tracker
    run_id: str
    rows: list[Mapping[str, Any]]
    of_parent: Sequence[str]

    def __call__(self) -> None:
        runs = self.tracker._runs
        runs.log_metrics(self.tracker._resolved_id(self.run_id), self.rows)
        if self.of_parent:
            columns = ("time", "done", *self.of_parent)
            chosen = [{name: row[name] for name in columns if name in row} for row in self.rows]
            runs.log_metrics(self.tracker._parent(), chosen)


def _now_ms() -> int:
    return round(time.time() * 1000)
