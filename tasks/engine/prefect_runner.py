"""Run stages as Prefect task runs. The only module of this package that imports Prefect.

The manifest decides whether a stage runs (``tasks.engine.lookup``); Prefect only shows it. A file in a folder of the
site gives a hit Prefect's state ``Cached``; a miss replaces the file.

What is repeated when something fails, from the inside out:

    a request             Prefect's client, 7 times (``infra.servers.environment``); a bucket's client, 6 times
                          (``infra.store.s3_client``); MLflow's writes wait in a queue (``infra.tracking.write_queue``)
    a job                 ``tasks.stages.train`` relaunches it as long as each launch leaves a newer checkpoint, from
                          which the next launch continues (``model.training.checkpoint``)
    a stage               Prefect's task retries every stage RETRIES times, after 2, 4 and 8 seconds, if the class of
                          the fault has ``retry`` (``infra.errors``): a server, a disk, a machine or a job was lost. It
                          does not retry after bad data or configuration, a full disk, too little memory, divergence or
                          an error in the code. ``train`` resumes the folder of the last try
    its task run          this module, up to MAX_CALLS, if Prefect's server was lost; first ``wait_for_server``
    a run's own server    ``infra.servers.temporary_prefect`` starts it again, 5 times
    a run                 the user: the same command, or Retry in Prefect's page
"""

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPException
from typing import Any, Literal
from uuid import UUID

import httpx
from prefect import task
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact
from prefect.cache_policies import CacheKeyFnPolicy
from prefect.client.schemas.objects import State, TaskRun
from prefect.exceptions import PrefectException, PrefectHTTPStatusError
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.serializers import Serializer
from prefect.settings import PREFECT_API_URL
from prefect.tasks import Task, exponential_backoff

from infra.errors import BadConfiguration, Fault, NetworkFault
from infra.processes import signals
from infra.servers import prefect_states
from infra.store.store import Artifact
from tasks.engine.lookup import Hit
from tasks.engine.run_settings import RunSettings
from tasks.engine.runner import Runner
from tasks.engine.stage import StageCall

RETRIES = 3
FIRST_PAUSE_SECONDS = 2.0
PROGRESS_SECONDS = 5.0
SERVER_TIMEOUT_SECONDS = 600.0
"""How long a stage waits for Prefect's server before it starts; a running stage does not need the server."""
HEALTH_SECONDS = 5.0
POLL_SECONDS = 1.0
MAX_CALLS = 3
"""How often a task is called if its server is lost during the call."""
SERVER_ERRORS = (httpx.TransportError, PrefectHTTPStatusError)
"""What Prefect's client raises if the server is lost."""
PREFECT_ERRORS = (httpx.HTTPError, PrefectException, RuntimeError)
"""What it raises if the server is lost, was never reached, or refuses the request."""


def is_retryable(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:  # noqa: ARG001
    """Whether the class of the fault allows a retry."""
    try:
        state.result()
    except BaseException as error:
        return isinstance(error, Fault) and error.retry
    return False


class ArtifactName(Serializer):
    """Writes the key of a stage's artifact; the store keeps the artifact itself."""

    type: Literal["artifact"] = "artifact"

    def dumps(self, obj: Any) -> bytes:
        artifact: Artifact = obj.artifact
        return json.dumps({"stage": artifact.stage, "key": artifact.key, "content": artifact.content}).encode()

    def loads(self, blob: bytes) -> Any:
        return json.loads(blob)


class PrefectRunner(Runner):
    """Runs each stage as a task run with the stage's label, and shows its progress as a Prefect artifact."""

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        self._cache_folder = settings.site.root.absolute() / "prefect-records"
        self._completed: set[str] = set()
        self._failed: set[str] = set()
        self._progress_shown: dict[str, UUID] = {}
        self._progress_times: dict[str, float] = {}

    def resolve(self, call: StageCall) -> Artifact:
        """The artifact of ``call``, from the plan or from ``Runner.make``, which a Prefect task calls and retries.

        ``make`` keeps the hit; what the task returns is only shown in Prefect.
        """
        self._cache_folder.mkdir(parents=True, exist_ok=True)
        with self.resolution(call) as failures:
            run_stage = self._task(call, failures)
            for calls_left in reversed(range(MAX_CALLS)):
                wait_for_server()
                try:
                    state: State[Any] = run_stage(item=call.item, key=call.key, arguments=call.form, return_state=True)  # type: ignore[assignment]
                    break
                except SERVER_ERRORS:
                    # The next call finds the artifact, if the server was lost after it was made.
                    if not calls_left:
                        self._failed.add(call.label)
                        raise
            if not state.is_completed():
                self._failed.add(call.label)
                state.result()  # raises what the stage ended with
            self._completed.add(call.label)
        return self._hits[call.key].artifact

    def _task(self, call: StageCall, failures: list[str]) -> Task[..., Hit]:
        """The Prefect task of a stage; Prefect's UI shows its parameters."""
        stage = call.stage
        planned = self._hits.get(call.key)
        limited = [f"stage:{stage.name}", stage.needs]  # a user may limit the concurrency of each tag

        @task(
            name=stage.name,
            description=(stage.__doc__ or "").strip().split("\n")[0],
            version=str(stage.version),
            task_run_name=lambda: call.label,  # Prefect formats a string: braces of a file name would be fields
            tags=[] if planned else limited,
            retries=RETRIES,
            retry_delay_seconds=exponential_backoff(FIRST_PAUSE_SECONDS),
            retry_jitter_factor=0.2,
            retry_condition_fn=is_retryable,
            cache_policy=CacheKeyFnPolicy(cache_key_fn=lambda *_: f"{stage.name}-{call.key}"),
            persist_result=True,
            result_storage=self._cache_folder,
            result_serializer=ArtifactName(),
            refresh_cache=planned is None,
        )
        def run_stage(item: str, key: str, arguments: Mapping[str, Any]) -> Hit:  # noqa: ARG001
            self._progress_shown.pop(call.label, None)
            hit = self.make(call, failures)
            get_run_logger().info("%s is %s", call.label, hit.artifact.folder)
            return hit

        return run_stage

    def close(self) -> None:
        """Report the final states that an unreachable server missed, before the flow run ends.

        If the server is still away and a signal ends the run, this process exits: Prefect would retry for minutes.
        """
        if not _server_answers():
            signals.exit_if_received()
        prefect_states.close_task_runs(UUID(flow_run.id), frozenset(self._completed), frozenset(self._failed))

    def progress(self, call: StageCall, done: float, total: float, text: str) -> None:
        """Show the progress of a long stage in Prefect too, every PROGRESS_SECONDS at most: each call is a request."""
        super().progress(call, done, total, text)
        if total <= 0 or time.monotonic() - self._progress_times.get(call.label, 0.0) < PROGRESS_SECONDS:
            return
        if not _server_answers():  # Prefect's client would retry for minutes
            return
        self._progress_times[call.label] = time.monotonic()
        percent = min(100.0, 100.0 * done / total)
        key = f"{call.stage.name}-progress".replace("_", "-")
        with suppress(*PREFECT_ERRORS):  # a progress bar must not fail the stage
            if call.label in self._progress_shown:
                update_progress_artifact(self._progress_shown[call.label], percent, description=text)
            elif isinstance(artifact_id := create_progress_artifact(percent, key=key, description=text), UUID):
                self._progress_shown[call.label] = artifact_id


def publish_markdown(key: str, markdown: str, description: str) -> None:
    """Publish a Markdown artifact of the current flow run, if the server accepts it."""
    with suppress(*PREFECT_ERRORS):
        create_markdown_artifact(key=key, markdown=markdown, description=description)


def wait_for_server() -> None:
    """Wait until Prefect's server answers; raises NetworkFault after SERVER_TIMEOUT_SECONDS."""
    if _server_answers():
        return
    wait = f"waiting up to {SERVER_TIMEOUT_SECONDS / 60:.0f} min"
    print(f"repro: {_unreachable_message()}; `repro up` starts one that was stopped; {wait}", file=sys.stderr)
    end = time.monotonic() + SERVER_TIMEOUT_SECONDS
    while not _server_answers():
        if time.monotonic() > end:
            raise NetworkFault(_resume_message())
        signals.wait(POLL_SECONDS)


@contextmanager
def plain_server_errors() -> Iterator[None]:
    """Turn the errors of Prefect's client for a lost server into a NetworkFault."""
    try:
        yield
    except SERVER_ERRORS as error:
        if "Unauthorized" in f"{error}":
            refused = f"Prefect's server at {PREFECT_API_URL.value()} refuses the credentials"
            raise BadConfiguration(f"{refused}: see REPRO_AUTH") from error
        raise NetworkFault(_resume_message()) from error
    except RuntimeError as error:
        if "Failed to reach API" not in f"{error}":
            raise
        raise NetworkFault(_unreachable_message()) from error


def _server_answers() -> bool:
    if not (address := PREFECT_API_URL.value()):
        return True  # Prefect starts a temporary server
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=HEALTH_SECONDS):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except (OSError, HTTPException):
        return False


def _unreachable_message() -> str:
    return f"Prefect's server at {PREFECT_API_URL.value()} does not answer"


def _resume_message() -> str:
    return f"{_unreachable_message()}; finished stages are kept: run the same command again to continue"
