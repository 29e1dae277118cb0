"""Stages as Prefect task runs. The only module of this package that knows Prefect.

Whether a stage runs is decided by its manifest (``tasks.execution``). Prefect is told: its cache record, kept in a
folder of the site, gives a hit its ``Cached`` state; for a miss the record is refreshed.
"""

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import task
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact
from prefect.cache_policies import CacheKeyFnPolicy
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext
from prefect.logging import get_run_logger
from prefect.tasks import Task, exponential_backoff

from infra.faults import Fault
from infra.store import Artifact
from tasks.stage import Call

FIRST_PAUSE_SECONDS = 2.0
PROGRESS_SECONDS = 5.0


def can_help(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:  # noqa: ARG001
    """Whether trying again can help: the class of the fault says so."""
    try:
        state.result()
    except Fault as fault:
        return fault.retry
    except BaseException:
        return False
    return False


class PrefectRunner:
    """Calls a stage's body as a task run named like the stage, its progress shown as a Prefect artifact.

    What needs one of ``handed`` only waits here for a worker elsewhere; without ``retries`` that is whose flow run this
    is, and whoever waits tries again.
    """

    def __init__(self, records: Path, handed: Collection[str] = (), retries: bool = True) -> None:
        self.records = records
        self.handed = handed
        self.retries = retries
        self._progress: dict[str, UUID] = {}
        self._shown: dict[str, float] = {}

    def __call__(self, call: Call, hit: bool, execute: Callable[[], Artifact]) -> None:
        stage = call.stage

        def record_key(context: TaskRunContext, parameters: Mapping[str, Any]) -> str:  # noqa: ARG001
            return f"{stage.name}-{call.key}"

        self.records.mkdir(parents=True, exist_ok=True)

        @task(
            name=stage.name,
            description=(stage.__doc__ or "").strip().split("\n")[0],
            version=str(stage.version),
            task_run_name=call.label,
            # Each tag may have a limit, which the server is asked for; what does not run needs no place.
            tags=[] if hit else ["handed-over"] if stage.needs in self.handed else [f"stage:{stage.name}", stage.needs],
            retries=stage.retries if self.retries else 0,
            retry_delay_seconds=exponential_backoff(FIRST_PAUSE_SECONDS),
            retry_jitter_factor=0.2,
            retry_condition_fn=can_help,
            cache_policy=CacheKeyFnPolicy(cache_key_fn=record_key),
            persist_result=True,
            result_storage=self.records,
            result_serializer="json",
            refresh_cache=not hit,
        )
        def run_stage(item: str, key: str, arguments: Mapping[str, Any]) -> dict[str, str]:  # noqa: ARG001
            self._progress.pop(call.label, None)
            artifact = execute()
            get_run_logger().info("%s is %s", call.label, artifact.folder)
            return {"stage": artifact.stage, "key": artifact.key, "content": artifact.content}

        run_stage(item=call.item, key=call.key, arguments=call.form)

    def progress(self, call: Call, done: float, total: float, text: str) -> None:
        """Show how far a long stage is; now and then, since each call is a request."""
        if total <= 0 or time.monotonic() - self._shown.get(call.label, 0.0) < PROGRESS_SECONDS:
            return
        self._shown[call.label] = time.monotonic()
        percent, key = min(100.0, 100.0 * done / total), f"{call.stage.name}-progress".replace("_", "-")
        with suppress(Exception):  # a picture of the work is not worth the work
            if call.label in self._progress:
                update_progress_artifact(self._progress[call.label], percent, description=text)
            elif isinstance(made := create_progress_artifact(percent, key=key, description=text), UUID):
                self._progress[call.label] = made


def publish(key: str, markdown: str, description: str) -> None:
    """A Markdown artifact of the present flow run, if the server takes it."""
    with suppress(Exception):
        create_markdown_artifact(key=key, markdown=markdown, description=description)
