"""Creates and fills the MLflow runs of one pipeline run: a parent, and one child for each stage.

It uses only ``MlflowClient`` with explicit ids: the fluent API's global state fails if processes or runs overlap.
Every method raises MLflow's errors and may be repeated, because the answer to a successful request can be lost.
``infra.tracking.tracker`` queues these calls while the server is unreachable.
"""

import json
import math
import re
import socket
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from infra.processes.identity import process_identity
from infra.servers.relocation import DATABASE, relocate
from infra.servers.sqlite_addresses import sqlite_file
from infra.tracking.client import PROCESS_TAG, mlflow_client
from infra.tracking.provenance import commit, user
from infra.tracking.run_description import StageRow, flatten, is_number

METRICS_PER_BATCH = 1000
MAX_PARAM_LENGTH = 6000
MAX_TAG_LENGTH = 8000
CURSOR = "metrics_cursor"
LAYER = re.compile(r"_\d+$")
"""The end of the name of a layer's metric. The tag of a cursor for each layer would be longer than MLflow stores."""
TABLES = "mlflow.loggedArtifacts"
"""The tag that tells MLflow's pages which files are tables."""
START_TOKEN = "start_token"
"""The tag by which a repeated start finds its run."""
PARENT = "mlflow.parentRunId"
OVERRIDES = "overrides"
SETTINGS = "settings"
"""The tag of a parent run with its settings in words. Its children's names end with these words."""
EXPERIMENT_KIND = {"mlflow.experimentKind": "custom_model_development"}
"""Makes the UI open the experiment as a list of training runs; the default is a chat application's page."""


@dataclass(frozen=True)
class RunFile:
    """A file that a run shows; ``is_table`` marks a table in MLflow's JSON format."""

    name: str
    content: bytes
    is_table: bool = False


class MlflowRuns:
    """The runs of one experiment at ``uri``. Artifacts go below ``artifact_root`` unless a server stores them."""

    def __init__(self, uri: str, artifact_root: Path, token: str = "") -> None:
        self.uri = uri
        self.artifact_root = artifact_root
        self.experiment_id = ""
        self.parent_tags: Mapping[str, str] = {}
        """The tags of the parent run; empty before ``start_parent``."""
        self._cursors: dict[str, dict[str, int]] = {}
        """Maps each run to the last logged step of each metric; a metric's layers share one, as they share rows."""
        self._place = f"{socket.gethostname()}:{artifact_root}"
        self._start_token = token or uuid.uuid4().hex

    @cached_property
    def client(self) -> Any:
        root = self.artifact_root.parent
        if sqlite_file(self.uri) == root / DATABASE:
            relocate(root)
        return mlflow_client(self.uri)

    def start_parent(
        self, experiment: str, name: str, tags: Mapping[str, str], params: Mapping[str, Any], start_ms: int
    ) -> str:
        """Create the parent run unless an earlier call did; return its id."""
        self.experiment_id = self._experiment(experiment)
        self.parent_tags = dict(tags)
        token = f"tags.{START_TOKEN} = '{self._start_token}'"
        if created := self.client.search_runs([self.experiment_id], token, max_results=1):
            run_id = self._reopen(created[0])
        else:
            texts = {tag: f"{text}"[:MAX_TAG_LENGTH] for tag, text in flatten(tags).items()}
            own = {START_TOKEN: self._start_token, **_source_tags("repro")}
            run_id = self._create(name, own | texts, start_ms)
        self._log_params(run_id, params)
        return run_id

    def start_stage(
        self, parent: str, row: StageRow, params: Mapping[str, Any], start_ms: int, continues: bool = False
    ) -> str:
        """Reopen the unfinished run of this key in this folder under ``parent``, or create one; return its id.

        A run with curves is reopened only if the stage ``continues``: other curves would begin at step 1 again.
        """
        # Another machine on the same server may be making the same key. The folder is compared here, because MLflow's
        # filters cannot express every path.
        unfinished = f"tags.stage_key = '{row.key}' and attributes.status != 'FINISHED'"
        found = self.client.search_runs([self.experiment_id], unfinished)
        interrupted = next((run for run in found if run.data.tags.get("place") == self._place), None)
        if interrupted and (continues or CURSOR not in interrupted.data.tags):
            return self._reopen(interrupted, parent)
        tags = {PARENT: parent, "stage": row.stage, "item": row.item, "stage_key": row.key, "place": self._place}
        name = " · ".join(filter(None, (row.label, self.parent_tags.get(SETTINGS, ""))))
        run_id = self._create(name, tags | _source_tags(f"tasks/stages/{row.stage}.py"), start_ms)
        self._log_params(run_id, params)
        return run_id

    def _reopen(self, run: Any, parent: str = "") -> str:
        run_id = str(run.info.run_id)
        self.client.update_run(run_id, status="RUNNING")
        if parent:
            self.client.set_tag(run_id, PARENT, parent)
        self.client.set_tag(run_id, PROCESS_TAG, process_identity())
        if "failure" in run.data.tags:
            self.client.delete_tag(run_id, "failure")
        steps: dict[str, int] = {}
        for name, step in re.findall(r'"([^"]+)": (\d+)', run.data.tags.get(CURSOR, "")):  # an old one may be cut off
            of_all_layers = LAYER.sub("", name)
            steps[of_all_layers] = max(int(step), steps.get(of_all_layers, -1))
        self._cursors.setdefault(run_id, steps)
        return run_id

    def find_finished(self, key: str) -> tuple[str, str]:
        """Return run and experiment of the newest FINISHED stage with ``key``, of this folder if there is one.

        Both are empty if there is none. Another CPU's artifact of the key may differ."""
        experiments = [experiment.experiment_id for experiment in self.client.search_experiments()]
        finished = f"tags.stage_key = '{key}' and attributes.status = 'FINISHED'"
        found = self.client.search_runs(experiments, finished, order_by=["attributes.start_time DESC"])
        found.sort(key=lambda run: run.data.tags.get("place") != self._place)
        return (found[0].info.run_id, found[0].info.experiment_id) if found else ("", "")

    def log_metrics(self, run_id: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Log the numbers of ``metrics.jsonl`` rows with their ``done`` and ``time``; skip steps already logged."""
        from mlflow.entities import Metric, RunTag

        cursor = dict(self._cursors.get(run_id, {}))
        metrics = []
        for row in rows:
            if not is_number(row.get("done")) or not math.isfinite(row["done"]):
                continue
            step = int(row["done"])
            moment = round(float(row.get("time", time.time())) * 1000)
            reached = dict(cursor)
            for name, value in flatten(row).items():
                # Facts are logged when the stage ends.
                other = name in ("time", "done", "total") or name.startswith("facts.")
                of_all_layers = LAYER.sub("", name)
                if not other and is_number(value) and step > reached.get(of_all_layers, -1):
                    cursor[of_all_layers] = step
                    metrics.append(Metric(name, value, moment, step))
        for begin in range(0, len(metrics), METRICS_PER_BATCH):
            is_last = begin + METRICS_PER_BATCH >= len(metrics)
            tags = [RunTag(CURSOR, json.dumps(cursor))] if is_last else []
            self.client.log_batch(run_id, metrics[begin : begin + METRICS_PER_BATCH], (), tags)
        self._cursors[run_id] = cursor

    def log_facts(self, run_id: str, facts: Mapping[str, Any]) -> None:
        """Log numbers as metrics and everything else as tags."""
        from mlflow.entities import Metric, RunTag

        now = round(time.time() * 1000)
        values = flatten(facts)
        # Log at the end of the run's curves, so that a fact with a curve's name (dev_perplexity) is its last point.
        step = max(self._cursors.get(run_id, {}).values(), default=0)
        metrics = [Metric(name, value, now, step) for name, value in values.items() if is_number(value)]
        tags = [RunTag(name, f"{value}"[:MAX_TAG_LENGTH]) for name, value in values.items() if not is_number(value)]
        self.client.log_batch(run_id, metrics, (), tags)

    def log_files(self, run_id: str, files: Sequence[RunFile]) -> None:
        """Store the files with the run; its page shows tables as tables."""
        with tempfile.TemporaryDirectory() as scratch:
            for file in files:
                Path(scratch, file.name).write_bytes(file.content)
            if files:
                self.client.log_artifacts(run_id, scratch)
        if tables := [{"path": file.name, "type": "table"} for file in files if file.is_table]:
            self.client.set_tag(run_id, TABLES, json.dumps(tables))

    def _experiment(self, name: str) -> str:
        """Return the experiment's id; creates or restores the experiment if necessary."""
        from mlflow.exceptions import MlflowException

        found = self.client.get_experiment_by_name(name)
        if not found:
            served = self.uri.startswith(("http://", "https://", "databricks"))
            location = None if served else (self.artifact_root / name).as_uri()
            try:
                return str(self.client.create_experiment(name, artifact_location=location, tags=EXPERIMENT_KIND))
            except MlflowException:
                found = self.client.get_experiment_by_name(name)  # another process may have created it meanwhile
                if not found:
                    raise
        if found.lifecycle_stage == "deleted":
            self.client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)

    def _create(self, name: str, tags: Mapping[str, str], start_ms: int) -> str:
        said = {name: text for name, text in tags.items() if text}  # MLflow would show empty tags
        run = self.client.create_run(self.experiment_id, start_time=start_ms, tags=said, run_name=name)
        return str(run.info.run_id)

    def _log_params(self, run_id: str, params: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        named = [Param(name, f"{value}"[:MAX_PARAM_LENGTH]) for name, value in flatten(params).items()]
        self.client.log_batch(run_id, params=named)


def _source_tags(source: str) -> dict[str, str]:
    return {
        PROCESS_TAG: process_identity(),
        "mlflow.source.name": source,
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": commit(),
        "mlflow.user": user(),
    }
