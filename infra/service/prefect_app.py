"""The Prefect server of a service: refuses requests of foreign web pages, and locks the template of its work pools.

``python -m uvicorn --factory infra.service.prefect_app:application`` serves it in the environment that ``programs``
builds, whose tag names the service. Prefect is imported late.
"""

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from infra.service.browser_access import PREFECT_HOSTS, PREFECT_ORIGINS, allowed_hosts, allowed_origins
from infra.service.process_tags import folder_of
from infra.service.settings import read

if TYPE_CHECKING:
    from starlette.types import ASGIApp

TYPE = "process"
TEMPLATE: dict[str, Any] = {
    # No value is a template, so no variable is filled in. No ``env`` either: Prefect merges a job variable of that
    # name into it even without a template. Prefect refuses an empty configuration.
    "job_configuration": {"stream_output": True},
    # Prefect answers 422 to a deployment or flow run with a job variable.
    "variables": {"type": "object", "properties": {}, "additionalProperties": False},
}
"""Base job template of the service's process pools. With Prefect's own template, whoever can create a flow run chooses
the command, environment and folder of the process that a worker starts. Variables of flow runs come from the worker."""


def application() -> "ASGIApp":
    """Prefect's API and UI behind ``SameOrigin``; the service's pools exist before the first answer."""
    from prefect.server.api.server import create_app

    from infra.servers.same_origin import SameOrigin

    service = read(folder_of(os.environ))
    app = create_app()
    started = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(each: Any) -> AsyncIterator[Any]:
        async with started(each) as state:
            await ensure_pools(dict.fromkeys(pool for pool, _ in service.pools))
            yield state

    app.router.lifespan_context = lifespan
    hosts = allowed_hosts(PREFECT_HOSTS, service, os.environ)
    origins = allowed_origins(PREFECT_ORIGINS, os.environ)
    return SameOrigin(app, hosts, origins, any_address=not service.on_loopback)


async def ensure_pools(names: Iterable[str]) -> None:
    """Create the pools, or set their template, in the database of the Prefect server that runs in this process."""
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
