"""The ASGI applications of a service: Prefect's and MLflow's, closed to foreign web pages and unknown users.

uvicorn serves the factories ``prefect`` and ``mlflow`` in the environment that ``programs`` builds. A tag in this
environment names the service. Both libraries are imported late.
"""

import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from infra.servers.credentials import read_credentials
from infra.servers.loopback import host_names, own_names
from infra.servers.service_settings import Service, read
from infra.servers.temporary_prefect import PREFECT_ORIGINS
from infra.service.process_tags import folder_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp

PREFECT_HOSTS = "REPRO_PREFECT_ALLOWED_HOSTS"
MLFLOW_HOSTS = "MLFLOW_SERVER_ALLOWED_HOSTS"
"""Additional host names of each server, separated by commas. A port, which MLflow's format allows, is ignored."""
MLFLOW_ORIGINS = "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS"
"""Like ``PREFECT_ORIGINS``, for MLflow."""
TYPE = "process"
TEMPLATE: dict[str, Any] = {
    # No value is a template, so no variable is filled in. ``env`` is absent too, because Prefect merges a job variable
    # of that name into it even without a template. Prefect refuses an empty configuration.
    "job_configuration": {"stream_output": True},
    # Prefect answers 422 to a deployment or flow run with a job variable.
    "variables": {"type": "object", "properties": {}, "additionalProperties": False},
}
"""Base job template of the service's process pools. With Prefect's own template, anyone who can create a flow run can
choose the command, environment and folder of the worker's process. Here the worker sets them."""


def prefect() -> "ASGIApp":
    """Return Prefect's API and UI, which creates the service's pools at its start. Prefect checks credentials."""
    from prefect.server.api.server import create_app

    from infra.servers.request_guards import SameOrigin

    service = read(folder_of(os.environ))
    app = create_app()
    started = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(each: Any) -> AsyncIterator[Any]:
        async with started(each) as state:
            await ensure_pools(dict.fromkeys(pool for pool, _ in service.pools))
            yield state

    app.router.lifespan_context = lifespan
    return SameOrigin(
        app, allowed_hosts(PREFECT_HOSTS, service, os.environ), allowed_origins(PREFECT_ORIGINS, os.environ)
    )


def mlflow() -> "ASGIApp":
    """Return MLflow's API and UI. If credentials are set, only requests with them get an answer.

    Sets the variables that ``mlflow server`` would set for its child process.
    """
    from infra.servers.request_guards import BasicAuth, SameOrigin

    hosts = allowed_hosts(MLFLOW_HOSTS, read(folder_of(os.environ)), os.environ)
    origins = allowed_origins(MLFLOW_ORIGINS, os.environ)
    # MLflow's own checks accept every host name that begins like a private address (``10.attacker.example``), and every
    # origin on loopback. ``SameOrigin`` checks instead, so these variables accept all hosts and all origins with a
    # scheme. With the origin "*", any page could read answers.
    os.environ[MLFLOW_HOSTS] = "*"
    os.environ[MLFLOW_ORIGINS] = "http://*,https://*"
    from mlflow.environment_variables import _MLFLOW_SERVER_BOOT_ID
    from mlflow.server import constants
    from mlflow.server.handlers import initialize_backend_stores

    database = os.environ["MLFLOW_BACKEND_STORE_URI"]
    artifacts = os.environ["MLFLOW_DEFAULT_ARTIFACT_ROOT"]
    os.environ |= {
        constants.BACKEND_STORE_URI_ENV_VAR: database,
        constants.REGISTRY_STORE_URI_ENV_VAR: database,
        constants.ARTIFACT_ROOT_ENV_VAR: artifacts,
        constants.ARTIFACTS_DESTINATION_ENV_VAR: os.environ["MLFLOW_ARTIFACTS_DESTINATION"],
        constants.SERVE_ARTIFACTS_ENV_VAR: "true",
        _MLFLOW_SERVER_BOOT_ID.name: uuid4().hex,
    }
    initialize_backend_stores(database, database, artifacts)
    from mlflow.server.fastapi_app import app

    credentials = read_credentials(os.environ)
    closed = BasicAuth(app, credentials, open_path="/health") if credentials else app
    return SameOrigin(closed, hosts, origins)


def allowed_hosts(variable: str, service: Service, outer: Mapping[str, str]) -> list[str]:
    """Return the names of the service's machine and of ``variable``. Raises BadConfiguration for a malformed name."""
    return [*own_names(service.host), *host_names(variable, _words(outer.get(variable, "")))]


def allowed_origins(variable: str, outer: Mapping[str, str]) -> list[str]:
    """Return the origins that the operator set, without Prefect's default ``*``."""
    return [origin for origin in _words(outer.get(variable, "")) if origin != "*"]


async def ensure_pools(names: Iterable[str]) -> None:
    """Create the pools, or set their template, in the database of this process's Prefect server."""
    from prefect.server import models
    from prefect.server.database import provide_database_interface
    from prefect.server.schemas.actions import WorkPoolCreate, WorkPoolUpdate

    workers: Any = models.workers  # decorated in a way that mypy does not follow
    async with provide_database_interface().session_context(begin_transaction=True) as session:
        for name in names:
            pool = await workers.read_work_pool_by_name(session, name)
            if pool is None:
                await workers.create_work_pool(
                    session, WorkPoolCreate(name=name, type=TYPE, base_job_template=TEMPLATE)
                )
            elif pool.type == TYPE and pool.base_job_template != TEMPLATE:
                await workers.update_work_pool(session, pool.id, WorkPoolUpdate(base_job_template=TEMPLATE))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
