"""The work pools of a service: process pools whose job variables nobody can override.

With Prefect's own template whoever can create a flow run chooses the command that the worker starts, its environment
and its folder. Prefect is loaded late.
"""

from collections.abc import Iterable
from typing import Any

TYPE = "process"
TEMPLATE: dict[str, Any] = {
    # No template of a value, so nothing is filled in. No ``env`` either: Prefect merges a job variable of that name
    # into a mapping there, template or not. Prefect refuses an empty configuration.
    "job_configuration": {"stream_output": True},
    # Prefect answers 422 to a deployment or a flow run that brings a job variable.
    "variables": {"type": "object", "properties": {}, "additionalProperties": False},
}
"""The base job template. What a flow run needs in its environment belongs into the worker's."""


async def have_pools(names: Iterable[str]) -> None:
    """Make the pools in the database of the Prefect server that runs in this process, or give them the template."""
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
