"""MLflow as the record of runs: one parent run for each pipeline run, below it one child for each stage that ran.

Comes in: what stages are called, their arguments, facts and rows of ``metrics.jsonl``. Goes out: runs, curves, tags and
a note on the parent that a person can read. Only ``MlflowClient`` with explicit ids is used, never the fluent calls:
their global state breaks where several processes or runs meet. A record is not worth a run: while the store does not
answer, what is to be written waits, one warning says so, and the work goes on.
"""

import json
import math
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from infra.errors import NetworkFault
from infra.processes.identity import process_identity
from infra.servers.relocation import DATABASE, relocate
from infra.servers.sqlite_addresses import sqlite_file, sqlite_uri
from infra.tracking.client import PROCESS_TAG, mlflow_client
from infra.tracking.provenance import commit, user
from infra.tracking.run_description import NO_FACTS, StageRow, flatten, is_number, numeric_facts, run_description
from infra.tracking.write_queue import WriteQueue

METRICS_PER_BATCH = 1000
PARAMS_PER_BATCH = 100
LONGEST_PARAM = 6000
LONGEST_TAG = 8000
PENDING = "later:"
"""Opens the id of a stage that began while MLflow was away, until it has one there."""
CURSOR = "metrics_cursor"
TOKEN = "start"
PARENT = "mlflow.parentRunId"
NOTE = "mlflow.note.content"
KIND = "mlflow.experimentKind"
"""Opens the experiment as a list of training runs; unset, the UI takes it for a chat application's."""


class Tracker:
    """Writes one pipeline run to MLflow.

    ``uri`` empty: a SQLite file beside ``artifact_root``. Artifacts go below ``artifact_root``, except at a server,
    which has its own place. The numbers of the stage ``headline`` also stand on the parent run, as ``item.number``, so
    that runs can be compared in a table. What begins while MLflow is away gets an id of ours for the time being, which
    every method takes like one of MLflow's.
    """

    def __init__(self, uri: str, artifact_root: Path, headline: str = "score") -> None:
        self.artifact_root = artifact_root.absolute()
        self.uri = uri or sqlite_uri(self.artifact_root.parent / DATABASE)
        self.headline = headline
        self.experiment_id = ""
        self.run_id = ""
        self._client: Any = None
        self._begun = False
        self._wanted: tuple[str, str, Mapping[str, str], Mapping[str, Any]] = ("", "", {}, {})
        self._lines: list[StageRow] = []
        self._cursors: dict[str, dict[str, int]] = {}
        self._pending: dict[str, StageRow] = {}
        self._writes = WriteQueue(self.uri, lambda: self.client.search_experiments(max_results=1))
        self._token = uuid.uuid4().hex
        self._moment = 0

    @property
    def client(self) -> Any:
        """The MlflowClient; raises what MLflow raises when the store does not answer."""
        if self._client is None:
            root = self.artifact_root.parent
            if sqlite_file(self.uri) == root / DATABASE:
                relocate(root)
            self._client = mlflow_client(self.uri)
        return self._client

    def start(self, experiment: str, name: str, tags: Mapping[str, str], params: Mapping[str, Any]) -> str:
        """Begin the parent run of one pipeline run; gives its id."""
        self._begun, self._moment = True, round(time.time() * 1000)
        self._wanted = (experiment, name, tags, params)
        return self._writes.call_now("the run", self._parent)

    def join(self, run_id: str) -> None:
        """Put stages under a parent run that another process has begun, and will end."""
        self.run_id = run_id

    def start_stage(self, stage: str, item: str, key: str, params: Mapping[str, Any]) -> str:
        """Begin the child run of one stage; gives its id, of MLflow's or, where it is away, for the time being.

        A child of the same key that did not end well here before is taken up again, under the present parent, so
        that the curve of a killed training goes on.
        """
        line = StageRow(stage, item, key, "running")
        self._lines.append(line)
        begun = round(time.time() * 1000)
        run_id = ""
        self._writes.flush()
        if not len(self._writes):
            run_id = self._writes.call_now(line.label, lambda: self._child(line, params, begun))
        if not run_id:
            run_id = f"{PENDING}{len(self._lines)}"
            self._pending[run_id] = line
            self._write(line.label, lambda: self._child(line, params, begun))
        self._write_note()
        return run_id

    def log_rows(self, run_id: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Log the numbers of ``metrics.jsonl`` rows at their ``done`` and ``time``; repeated steps are dropped."""
        waiting = self._writes.last
        if isinstance(waiting, _MetricRows) and waiting.run_id == run_id:
            waiting.rows.extend(rows)
        elif run_id:
            self._write("metrics", _MetricRows(self, run_id, list(rows)))
        self._writes.flush()

    def log_now(self, run_id: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Log the numbers of rows that are new to a run of MLflow's; raises what MLflow raises, and may be repeated."""
        from mlflow.entities import Metric, RunTag

        cursor, metrics = dict(self._cursors.get(run_id, {})), []
        for row in rows:
            if not is_number(row.get("done")) or not math.isfinite(row["done"]):
                continue
            step, moment = int(row["done"]), round(float(row.get("time", time.time())) * 1000)
            for name, value in flatten(row).items():
                known = name in ("time", "done", "total") or name.startswith("facts.")  # told when the stage ends
                if known or not is_number(value) or step <= cursor.get(name, -1):
                    continue
                cursor[name] = step
                metrics.append(Metric(name, value, moment, step))
        for begin in range(0, len(metrics), METRICS_PER_BATCH):
            is_last = begin + METRICS_PER_BATCH >= len(metrics)
            tags = [RunTag(CURSOR, json.dumps(cursor))] if is_last else []
            self.client.log_batch(run_id, metrics[begin : begin + METRICS_PER_BATCH], (), tags)
        self._cursors[run_id] = cursor

    def log_artifacts(self, run_id: str, files: Iterable[Path], folder: str = "") -> None:
        """Store ``files`` with the run, below ``folder``."""
        for file in files if run_id else ():
            self._write(file.name, partial(self._log_artifact, run_id, file, folder))
        self._writes.flush()

    def log_input(
        self, run_id: str, context: str, name: str, digest: str, source: str, profile: Mapping[str, Any]
    ) -> None:
        """Name a data set that the run used, by the digest of its content; shown in the UI's column Dataset."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        if not run_id:
            return
        data = Dataset(name, digest[:36], "local", json.dumps({"uri": source}), profile=json.dumps(dict(profile)))
        used = DatasetInput(data, [InputTag("mlflow.data.context", context)])
        self._write("data", lambda: self.client.log_inputs(self._resolved_id(run_id), [used]))
        self._writes.flush()

    def finish_stage(self, run_id: str, status: str, facts: Mapping[str, Any]) -> None:
        """End a child: ``status`` FINISHED, FAILED or KILLED; numbers among the facts become metrics, the rest tags."""
        mine = self._pending.get(run_id)
        line = mine or next((known for known in reversed(self._lines) if known.run_id == run_id), None)
        if line and line.state == "running":
            line.state = {"FINISHED": "completed"}.get(status, status.lower())
            line.seconds, line.facts = time.monotonic() - line.begun, facts
            self._log_headline(line)
        if run_id:
            self._write("facts", lambda: self._log_facts(self._resolved_id(run_id), facts))
            ended = round(time.time() * 1000)
            self._write(
                "the end of a stage",
                lambda: self.client.set_terminated(self._resolved_id(run_id), status, end_time=ended),
            )
        self._write_note()

    def cached(
        self, stage: str, item: str, key: str, facts: Mapping[str, Any] = NO_FACTS, state: str = "cached"
    ) -> None:
        """Name a stage that did not have to run here, with a link to the run that made it."""
        if not self._begun:
            return
        line = StageRow(stage, item, key, state, facts=facts)
        self._lines.append(line)
        self._write("a cached stage", lambda: self._find_original_run(line))
        self._log_headline(line)
        self._write_note()

    def resolve_run_id(self, run_id: str) -> str:
        """MLflow's id for ``run_id``, for work that needs it now; raises NetworkFault without an answer."""
        self._writes.retry_now()
        self._writes.flush()
        line = self._pending.get(run_id)
        if not (real := line.run_id if line else run_id):
            raise NetworkFault(f"MLflow at {self.uri} does not answer")
        return real

    def finish(self, status: str) -> None:
        """End the parent: ``status`` FINISHED, FAILED or KILLED. What still waits is waited for, not if KILLED."""
        self._write_note()
        if self._begun:
            ended = round(time.time() * 1000)
            self._write(
                "the end of the run", lambda: self.client.set_terminated(self._parent(), status, end_time=ended)
            )
        self._writes.flush_all(patient=status != "KILLED")

    def _log_artifact(self, run_id: str, file: Path, folder: str) -> None:
        self.client.log_artifact(self._resolved_id(run_id), str(file), folder or None)

    def _resolved_id(self, run_id: str) -> str:
        line = self._pending.get(run_id)
        if not (real := line.run_id if line else run_id):
            raise LookupError(f"{line.label if line else 'the stage'} has no run")
        return real

    def _parent(self) -> str:
        if not self.run_id:
            experiment, name, tags, params = self._wanted
            self.experiment_id = self._experiment(experiment)
            described = {
                PROCESS_TAG: process_identity(),
                TOKEN: self._token,
                "mlflow.source.name": f"repro run {experiment}",
                "mlflow.source.type": "LOCAL",
                "mlflow.source.git.commit": commit(),
                "mlflow.user": user(),
            }
            # A request whose answer got lost may have been carried out.
            mine = self.client.search_runs([self.experiment_id], f"tags.{TOKEN} = '{self._token}'", max_results=1)
            run = (mine or [self._created(name, described | _texts(tags), self._moment)])[0]
            self._log_params(run.info.run_id, params)
            self.run_id = run.info.run_id
        if not self.experiment_id:  # joined
            self.experiment_id = str(self.client.get_run(self.run_id).info.experiment_id)
        return self.run_id

    def _experiment(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        for attempt in range(2):
            found = self.client.get_experiment_by_name(name)
            if found:
                if found.lifecycle_stage == "deleted":
                    self.client.restore_experiment(found.experiment_id)
                return str(found.experiment_id)
            served = self.uri.startswith(("http://", "https://", "databricks"))
            place = None if served else (self.artifact_root / name).as_uri()
            try:
                return str(
                    self.client.create_experiment(
                        name, artifact_location=place, tags={KIND: "custom_model_development"}
                    )
                )
            except MlflowException:
                if attempt:  # the first time somebody else may have made it in between
                    raise
        raise AssertionError("unreachable")

    def _created(self, name: str, tags: Mapping[str, str], moment: int) -> Any:
        return self.client.create_run(self.experiment_id, start_time=moment, tags=dict(tags), run_name=name)

    def _child(self, line: StageRow, params: Mapping[str, Any], begun: int) -> str:
        line.run_id = self._child_run(line, params, begun)
        line.experiment = self.experiment_id
        return line.run_id

    def _child_run(self, line: StageRow, params: Mapping[str, Any], begun: int) -> str:
        parent, place = self._parent(), f"{socket.gethostname()}:{self.artifact_root}"
        # Another machine on the same server may be making the same at this moment: only what was begun here is ours.
        # The place is compared here, as a filter of MLflow's cannot hold every path.
        unfinished = f"tags.stage_key = '{line.key}' and attributes.status != 'FINISHED'"
        found = self.client.search_runs([self.experiment_id], unfinished)
        mine = next((run for run in found if run.data.tags.get("place") == place), None)
        if mine:
            run_id = str(mine.info.run_id)
            self.client.update_run(run_id, status="RUNNING")
            self.client.set_tag(run_id, PARENT, parent)
            self.client.set_tag(run_id, PROCESS_TAG, process_identity())
            if "failure" in mine.data.tags:
                self.client.delete_tag(run_id, "failure")
            self._cursors.setdefault(run_id, json.loads(mine.data.tags.get(CURSOR, "{}")))
            return run_id
        tags = {
            PARENT: parent,
            PROCESS_TAG: process_identity(),
            "stage": line.stage,
            "item": line.item,
            "stage_key": line.key,
            "place": place,
            "mlflow.source.name": f"tasks/stages/{line.stage}.py",
            "mlflow.source.type": "LOCAL",
            "mlflow.source.git.commit": commit(),
            "mlflow.user": user(),
        }
        run_id = str(self._created(line.label, tags, begun).info.run_id)
        self._log_params(run_id, params)
        return run_id

    def _log_params(self, run_id: str, params: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        named = [Param(name, f"{value}"[:LONGEST_PARAM]) for name, value in flatten(params).items()]
        for begin in range(0, len(named), PARAMS_PER_BATCH):
            self.client.log_batch(run_id, (), named[begin : begin + PARAMS_PER_BATCH], ())

    def _log_facts(self, run_id: str, facts: Mapping[str, Any]) -> None:
        from mlflow.entities import Metric, RunTag

        now, values = round(time.time() * 1000), flatten(facts)
        # At the end of the run's curves, so that a fact of the same name (dev_perplexity) is their last point.
        step = max(self._cursors.get(run_id, {}).values(), default=0)
        metrics = [Metric(name, value, now, step) for name, value in values.items() if is_number(value)]
        words = {name: value for name, value in values.items() if not is_number(value)}
        tags = [RunTag(name, text) for name, text in _texts(words).items()]
        if metrics or tags:
            self.client.log_batch(run_id, metrics[:METRICS_PER_BATCH], (), tags[:PARAMS_PER_BATCH])

    def _log_headline(self, line: StageRow) -> None:
        numbers = {f"{line.item}.{name}": value for name, value in numeric_facts(line.facts).items()}
        if line.stage == self.headline and numbers:
            self._write("scores", lambda: self._log_facts(self._parent(), numbers))

    def _find_original_run(self, line: StageRow) -> None:
        experiments = [experiment.experiment_id for experiment in self.client.search_experiments()]
        made = f"tags.stage_key = '{line.key}' and attributes.status = 'FINISHED'"
        found = self.client.search_runs(experiments, made, max_results=1, order_by=["attributes.start_time DESC"])
        if found:
            line.run_id, line.experiment = found[0].info.run_id, found[0].info.experiment_id

    def _write(self, what: str, action: Callable[[], object]) -> None:
        self._writes.put(what, action)

    def _write_note(self) -> None:
        if self._begun:
            self._write(
                "the note",
                lambda: self.client.set_tag(
                    self._parent(), NOTE, run_description(self._lines, self.headline)[:LONGEST_TAG]
                ),
            )
        self._writes.flush()


@dataclass
class _MetricRows:
    """Rows to log; which of them are new is asked when it is done, as the run may begin elsewhere until then."""

    tracker: Tracker
    run_id: str
    rows: list[Mapping[str, Any]]

    def __call__(self) -> None:
        self.tracker.log_now(self.tracker._resolved_id(self.run_id), self.rows)


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: f"{value}"[:LONGEST_TAG] for name, value in flatten(values).items()}
