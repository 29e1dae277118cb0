"""``prefect.yaml`` brought to a Prefect server, as often as one likes: what is there already keeps its id.

Comes in: the file, which deployments, what is to become of their schedules, where to tell of ends. Prefect's own
``prefect deploy`` would do, but that it needs the pools beforehand and switches off the schedules that a person has
switched on: here ``active`` in the file counts for a schedule that is new.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.objects import DeploymentSchedule
from prefect.client.schemas.schedules import CronSchedule
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectNotFound
from prefect.flows import Flow
from prefect.types.entrypoint import EntrypointType

from infra.errors import BadConfiguration
from infra.service.prefect_app import TEMPLATE, TYPE

ScheduleSwitch = Literal["on", "off", "as it is"]


def deploy(file: Path, names: Sequence[str], switch: ScheduleSwitch, say: Callable[[str], None]) -> None:
    """Pools, deployments and schedules of the file, of all or of those named. Raises BadConfiguration."""
    deployments = yaml.safe_load(file.read_text())["deployments"]
    known = [each["name"] for each in deployments]
    for name in names:
        if name not in known:
            raise BadConfiguration(f"unknown deployment {name!r}, known are: {', '.join(known)}")
    if switch != "as it is" and not names:
        raise BadConfiguration(
            "which schedules are to change? name the deployments, as in `repro deploy demo --activate`"
        )
    chosen = [each for each in deployments if not names or each["name"] in names]
    with get_client(sync_client=True) as client:
        # All pools, whatever is chosen: a run may hand a stage to another.
        for pool in dict.fromkeys(each["work_pool"]["name"] for each in deployments):
            ensure_pool(client, pool, say)
        for each in chosen:
            _deploy(client, each, switch, say)


def ensure_pool(client: SyncPrefectClient, name: str, say: Callable[[str], None]) -> None:
    """Make the pool, or lock the job variables of one that is there already."""
    try:
        pool = client.read_work_pool(name)
    except ObjectNotFound:
        client.create_work_pool(WorkPoolCreate(name=name, type=TYPE, base_job_template=TEMPLATE))
        say(f"work pool {name} is made; a worker: PYTHONSAFEPATH=1 prefect worker start --pool {name}")
    else:
        if pool.type == TYPE and pool.base_job_template != TEMPLATE:
            client.update_work_pool(name, WorkPoolUpdate(base_job_template=TEMPLATE))
            say(f"work pool {name}: flow runs can no longer override how its worker starts them")


def _deploy(
    client: SyncPrefectClient, declared: dict[str, Any], switch: ScheduleSwitch, say: Callable[[str], None]
) -> None:
    # Prefect's own loading would search the working folder first, and there may be a tasks.py.
    module, _, function = declared["entrypoint"].rpartition(".")
    flow: Flow[..., Any] = getattr(import_module(module), function)
    made = RunnerDeployment.from_flow(
        flow,
        declared["name"],
        parameters=declared["parameters"],
        description=declared["description"],
        tags=declared["tags"],
        work_pool_name=declared["work_pool"]["name"],
        # By module: a worker on another machine has the project installed, wherever its files lie there.
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    label = f"{flow.name}/{declared['name']}"
    before = _read_schedules(client, label)
    wanted = {each["slug"]: each for each in declared.get("schedules", ())}
    made.apply(schedules=[_schedule_parameters(each, new=slug not in before) for slug, each in wanted.items()])
    deployment = client.read_deployment_by_name(label)
    for slug, schedule in _read_schedules(client, label).items():
        if slug not in wanted:
            client.delete_deployment_schedule(deployment.id, schedule.id)
        elif switch != "as it is":
            client.update_deployment_schedule(deployment.id, schedule.id, active=switch == "on")
    now = [f"{slug} {'active' if each.active else 'paused'}" for slug, each in _read_schedules(client, label).items()]
    say(f"{label}: pool {declared['work_pool']['name']}, {', '.join(now) or 'no schedule'}")


def _read_schedules(client: SyncPrefectClient, label: str) -> dict[str, DeploymentSchedule]:
    """Those of a deployment by slug, none where it is not there."""
    try:
        return {each.slug or f"{each.id}": each for each in client.read_deployment_by_name(label).schedules}
    except ObjectNotFound:
        return {}


def _schedule_parameters(declared: dict[str, Any], new: bool) -> dict[str, Any]:
    cron = CronSchedule(cron=declared["cron"], timezone=declared["timezone"])
    return {"slug": declared["slug"], "schedule": cron, **({"active": declared["active"]} if new else {})}
