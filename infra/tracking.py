"""MLflow as the record of runs: one parent run for each pipeline run, below it one child for each stage that ran.

Comes in: what stages are called, their arguments, facts and rows of ``metrics.jsonl``. Goes out: runs, curves, tags and
a note on the parent that a person can read. Only ``MlflowClient`` with explicit ids is used, never the fluent calls:
their global state breaks where several processes or runs meet. A record is not worth a run: while the store does not
answer, what is to be written waits, one warning says so, and the work goes on.
"""

import json
import math
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from infra.faults import NetworkFault
from infra.mlflow_store import client
from infra.origin import commit, user
from infra.run_note import NOTHING, Line, flat, is_number, note, numbers_of

METRICS_AT_ONCE = 1000
PARAMS_AT_ONCE = 100
LONGEST_PARAM = 6000
LONGEST_TAG = 8000
AWAY_SECONDS = 60.0
"""How long a store that did not answer is left alone."""
TRIES = 3
"""Times a write is tried before it is given up, so that none stands in the way of the others for ever."""
CURSOR = "metrics_cursor"
PARENT = "mlflow.parentRunId"
NOTE = "mlflow.note.content"
KIND = "mlflow.experimentKind"
"""Opens the experiment as a list of training runs; unset, the UI takes it for a chat application's."""


class MetricsTail:
    """Reads the new complete lines of a growing ``metrics.jsonl``.

    A line still being written is left for the next time; one that a killed writer left broken is passed over; a file
    that became shorter was begun anew and is read from its start.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def read(self) -> list[dict[str, Any]]:
        """Rows written since the last call; none while there is no file."""
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._offset:
                    self._offset = 0
                file.seek(self._offset)
                block = file.read()
        except FileNotFoundError:
            return []
        whole = block[: block.rfind(b"\n") + 1]
        self._offset += len(whole)
        return list(_rows(whole))


def _rows(lines: bytes) -> Iterator[dict[str, Any]]:
    for line in lines.split(b"\n"):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


class Tracker:
    """Writes one pipeline run to MLflow.

    ``uri`` empty: a SQLite file beside ``artifact_root``. Artifacts go below ``artifact_root``, except at a server,
    which has its own place. The numbers of the stage ``headline`` also stand on the parent run, as ``item.number``, so
    that runs can be compared in a table. A run id is "" while MLflow did not answer; every method takes that as well.
    """

    def __init__(self, uri: str, artifact_root: Path, headline: str = "score") -> None:
        self.artifact_root = artifact_root.absolute()
        self.uri = uri or f"sqlite:///{self.artifact_root.parent / 'mlflow.db'}"
        self.headline = headline
        self.experiment_id = ""
        self.run_id = ""
        self._client: Any = None
        self._begun = False
        self._wanted: tuple[str, str, Mapping[str, str], Mapping[str, Any]] = ("", "", {}, {})
        self._lines: list[Line] = []
        self._cursors: dict[str, dict[str, int]] = {}
        self._waiting: deque[tuple[str, Callable[[], object]]] = deque()
        self._failures_of_first = 0
        self._away_until = 0.0
        self._warned: set[str] = set()

    @property
    def client(self) -> Any:
        """The MlflowClient; raises what MLflow raises when the store does not answer."""
        if self._client is None:
            self._client = client(self.uri)
        return self._client

    def start(self, experiment: str, name: str, tags: Mapping[str, str], params: Mapping[str, Any]) -> str:
        """Begin the parent run of one pipeline run; gives its id."""
        self._begun = True
        self._wanted = (experiment, name, tags, params)
        return self._asked("the run", self._parent)

    def join(self, run_id: str) -> None:
        """Put stages under a parent run that another process has begun, and will end."""
        self.run_id = run_id

    def start_stage(self, stage: str, item: str, key: str, params: Mapping[str, Any]) -> str:
        """Begin the child run of one stage; gives its id.

        A child of the same key that did not end well here before is taken up again, under the present parent, so
        that the curve of a killed training goes on.
        """
        line = Line(stage, item, key, "running")
        self._lines.append(line)
        line.run_id = self._asked(line.label, lambda: self._child(line, params))
        line.experiment = self.experiment_id
        self._write_note()
        return line.run_id

    def log_rows(self, run_id: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Log the numbers of ``metrics.jsonl`` rows at their ``done`` and ``time``; repeated steps are dropped."""
        from mlflow.entities import Metric, RunTag

        if not run_id:
            return
        cursor = self._cursors.setdefault(run_id, {})
        metrics = []
        for row in rows:
            if not is_number(row.get("done")) or not math.isfinite(row["done"]):
                continue
            step, moment = int(row["done"]), round(float(row.get("time", time.time())) * 1000)
            for name, value in flat(row).items():
                known = name in ("time", "done", "total") or name.startswith("facts.")  # told when the stage ends
                if known or not is_number(value) or step <= cursor.get(name, -1):
                    continue
                cursor[name] = step
                metrics.append(Metric(name, value, moment, step))
        for begin in range(0, len(metrics), METRICS_AT_ONCE):
            part = metrics[begin : begin + METRICS_AT_ONCE]
            is_last = begin + METRICS_AT_ONCE >= len(metrics)
            tags = [RunTag(CURSOR, json.dumps(cursor))] if is_last else []
            self._write("metrics", lambda part=part, tags=tags: self.client.log_batch(run_id, part, (), tags))  # type: ignore[misc]
        self._flush()

    def log_artifacts(self, run_id: str, files: Iterable[Path], folder: str = "") -> None:
        """Store ``files`` with the run, below ``folder``."""
        for file in files if run_id else ():
            self._write(file.name, lambda file=file: self.client.log_artifact(run_id, str(file), folder or None))  # type: ignore[misc]
        self._flush()

    def log_data(
        self, run_id: str, context: str, name: str, digest: str, source: str, profile: Mapping[str, Any]
    ) -> None:
        """Name a data set that the run used, by the digest of its content; shown in the UI's column Dataset."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        if not run_id:
            return
        data = Dataset(name, digest[:36], "local", json.dumps({"uri": source}), profile=json.dumps(dict(profile)))
        used = DatasetInput(data, [InputTag("mlflow.data.context", context)])
        self._write("data", lambda: self.client.log_inputs(run_id, [used]))
        self._flush()

    def finish_stage(self, run_id: str, status: str, facts: Mapping[str, Any]) -> None:
        """End a child: ``status`` FINISHED, FAILED or KILLED; numbers among the facts become metrics, the rest tags."""
        line = next((line for line in reversed(self._lines) if line.run_id == run_id and line.state == "running"), None)
        if line:
            line.state = {"FINISHED": "completed"}.get(status, status.lower())
            line.seconds, line.facts = time.monotonic() - line.begun, facts
            self._log_headline(line)
        if run_id:
            self._write("facts", lambda: self._log_facts(run_id, facts))
            self._write("the end of a stage", lambda: self.client.set_terminated(run_id, status))
        self._write_note()

    def cached(
        self, stage: str, item: str, key: str, facts: Mapping[str, Any] = NOTHING, state: str = "cached"
    ) -> None:
        """Name a stage that did not have to run here, with a link to the run that made it."""
        if not self._begun:
            return
        line = Line(stage, item, key, state, facts=facts)
        self._lines.append(line)
        self._write("a cached stage", lambda: self._find_maker(line))
        self._log_headline(line)
        self._write_note()

    def needed(self, run_id: str) -> str:
        """``run_id``, for work that needs it: NetworkFault for "", and the next try asks MLflow at once."""
        if not run_id:
            self._away_until = 0.0
            raise NetworkFault(f"MLflow at {self.uri} does not answer")
        return run_id

    def finish(self, status: str) -> None:
        """End the parent: ``status`` FINISHED, FAILED or KILLED. What still waits is tried one last time."""
        self._write_note()
        if self._begun:
            self._write("the end of the run", lambda: self.client.set_terminated(self._parent(), status))
        self._away_until = 0.0
        self._flush(last=True)

    def _parent(self) -> str:
        if not self.run_id:
            experiment, name, tags, params = self._wanted
            self.experiment_id = self._experiment(experiment)
            described = {
                "mlflow.source.name": f"repro run {experiment}",
                "mlflow.source.type": "LOCAL",
                "mlflow.source.git.commit": commit(),
                "mlflow.user": user(),
            }
            run = self.client.create_run(self.experiment_id, tags=described | _texts(tags), run_name=name)
            self.run_id = run.info.run_id
            self._log_params(self.run_id, params)
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

    def _child(self, line: Line, params: Mapping[str, Any]) -> str:
        parent, place = self._parent(), f"{socket.gethostname()}:{self.artifact_root}"
        # Another machine on the same server may be making the same at this moment: only what was begun here is ours.
        unfinished = f"tags.stage_key = '{line.key}' and tags.place = '{place}' and attributes.status != 'FINISHED'"
        found = self.client.search_runs([self.experiment_id], unfinished, max_results=1)
        if found:
            run_id = str(found[0].info.run_id)
            self.client.update_run(run_id, status="RUNNING")
            self.client.set_tag(run_id, PARENT, parent)
            if "failure" in found[0].data.tags:
                self.client.delete_tag(run_id, "failure")
            self._cursors.setdefault(run_id, json.loads(found[0].data.tags.get(CURSOR, "{}")))
            return run_id
        tags = {
            PARENT: parent,
            "stage": line.stage,
            "item": line.item,
            "stage_key": line.key,
            "place": place,
            "mlflow.source.name": f"tasks/{line.stage}.py",
            "mlflow.source.type": "LOCAL",
            "mlflow.source.git.commit": commit(),
            "mlflow.user": user(),
        }
        run_id = str(self.client.create_run(self.experiment_id, tags=tags, run_name=line.label).info.run_id)
        self._log_params(run_id, params)
        return run_id

    def _log_params(self, run_id: str, params: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        named = [Param(name, f"{value}"[:LONGEST_PARAM]) for name, value in flat(params).items()]
        for begin in range(0, len(named), PARAMS_AT_ONCE):
            self.client.log_batch(run_id, (), named[begin : begin + PARAMS_AT_ONCE], ())

    def _log_facts(self, run_id: str, facts: Mapping[str, Any]) -> None:
        from mlflow.entities import Metric, RunTag

        now, values = round(time.time() * 1000), flat(facts)
        # At the end of the run's curves, so that a fact of the same name (dev_perplexity) is their last point.
        step = max(self._cursors.get(run_id, {}).values(), default=0)
        metrics = [Metric(name, value, now, step) for name, value in values.items() if is_number(value)]
        words = {name: value for name, value in values.items() if not is_number(value)}
        tags = [RunTag(name, text) for name, text in _texts(words).items()]
        if metrics or tags:
            self.client.log_batch(run_id, metrics[:METRICS_AT_ONCE], (), tags[:PARAMS_AT_ONCE])

    def _log_headline(self, line: Line) -> None:
        numbers = {f"{line.item}.{name}": value for name, value in numbers_of(line.facts).items()}
        if line.stage == self.headline and numbers:
            self._write("scores", lambda: self._log_facts(self._parent(), numbers))

    def _find_maker(self, line: Line) -> None:
        experiments = [experiment.experiment_id for experiment in self.client.search_experiments()]
        made = f"tags.stage_key = '{line.key}' and attributes.status = 'FINISHED'"
        found = self.client.search_runs(experiments, made, max_results=1, order_by=["attributes.start_time DESC"])
        if found:
            line.run_id, line.experiment = found[0].info.run_id, found[0].info.experiment_id

    def _write_note(self) -> None:
        if self._begun:
            self._write(
                "the note",
                lambda: self.client.set_tag(self._parent(), NOTE, note(self._lines, self.headline)[:LONGEST_TAG]),
            )
        self._flush()

    def _asked(self, what: str, action: Callable[[], str]) -> str:
        """The answer to ``action``, or "" from a store that is away."""
        if time.monotonic() < self._away_until:
            return ""
        try:
            return action()
        except Exception as error:
            self._is_away(what, error)
            return ""

    def _write(self, what: str, action: Callable[[], object]) -> None:
        self._waiting.append((what, action))

    def _flush(self, last: bool = False) -> None:
        """Carry out what waits, in order, until the store does not answer; ``last`` passes over some failures."""
        failures = 0
        while self._waiting and time.monotonic() >= self._away_until:
            what, action = self._waiting[0]
            try:
                action()
            except Exception as error:
                failures += 1
                if last and failures < TRIES:
                    self._warn(f"MLflow did not take {what}: {_first_line(error)}")
                elif _may_come_back(error) and self._failures_of_first < TRIES:
                    self._failures_of_first += 1
                    self._is_away(what, error)
                    return
                else:
                    self._warn(f"MLflow refused {what}: {_first_line(error)}")
            self._waiting.popleft()
            self._failures_of_first = 0

    def _is_away(self, what: str, error: Exception) -> None:
        self._away_until = time.monotonic() + AWAY_SECONDS
        self._warn(f"MLflow at {self.uri} does not take {what} ({_first_line(error)}); the run goes on without", "away")

    def _warn(self, text: str, subject: str = "") -> None:
        if (subject or text) not in self._warned:
            self._warned.add(subject or text)
            print(f"repro: {text}", file=sys.stderr)


def _may_come_back(error: Exception) -> bool:
    """Whether a later try may succeed: anything but a plain refusal of what was given."""
    if isinstance(error, ValueError | TypeError | LookupError | AttributeError | FileNotFoundError):
        return False
    code = getattr(error, "error_code", "INTERNAL_ERROR")
    return code in ("INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED", "RESOURCE_EXHAUSTED")


def _first_line(error: Exception) -> str:
    return (f"{error}".strip().splitlines() or [type(error).__name__])[0][:300]


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: f"{value}"[:LONGEST_TAG] for name, value in flat(values).items()}
