"""Create or update the work pools, deployments and schedules of ``prefect.yaml`` at a Prefect server. Idempotent.

Unlike ``prefect deploy``, it creates missing pools and keeps existing schedules: ``active`` and times in the file apply
to new schedules only. Times and overrides of a user stay until the user gives others.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.objects import DeploymentSchedule
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.flows import Flow
from prefect.types.entrypoint import EntrypointType

from flows.inspection.check import expected_of
from flows.runner.find_run import check_sets, find_run, is_file, own_files
from flows.runs.overrides import as_options
from flows.runs.unknown_names import did_you_mean
from infra.errors import BadConfiguration
from infra.service.applications import TEMPLATE, TYPE
from tasks.durations import seconds_of
from tasks.engine.prefect_runner import plain_server_errors

Times = CronSchedule | IntervalSchedule
ScheduleSwitch = Literal["on", "off", "as it is"]
OWN_TIMES = "own-times"
"""The slug of a schedule with the user's own times."""
FROM_PAGE = "page-"
"""Begins the slug of a schedule that was made in Prefect's page, which gives none."""


def deployments_of(file: Path, names: Sequence[str], overrides: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the named deployments of the file, or all; makes one for a run in a user's file (``my-run.toml``).

    ``overrides`` replace the overrides of these deployments; an empty text removes them. Raises BadConfiguration for an
    unknown name.
    """
    deployments = yaml.safe_load(file.read_text())["deployments"]
    known = [each["name"] for each in deployments]
    own = []
    for name in names:
        if is_file(name):
            own.append(_deployment_of(name))
            if own[-1]["name"] in known:
                raise BadConfiguration(f"{name} is named {own[-1]['name']!r} like a built-in run; rename it")
        elif name not in known:
            hint = did_you_mean(name, [*known, *own_files()]) or ","
            allowed = f"known are: {', '.join(known)}; FILE.toml or FILE.py:NAME for your own"
            raise BadConfiguration(f"unknown deployment {name!r}{hint} {allowed}")
    chosen = [each for each in deployments if not names or each["name"] in names] + own
    if overrides:
        given = {"overrides": list(filter(None, overrides))}
        chosen = [each | {"parameters": each["parameters"] | given} for each in chosen]
    return chosen


def deploy(
    chosen: Sequence[dict[str, Any]], switch: ScheduleSwitch, say: Callable[[str], None], times: Times | None = None
) -> None:
    """Deploy ``chosen``, at ``times`` if given, and create the pools that they need."""
    timed = [each | {"schedules": [{"times": times, "slug": OWN_TIMES}]} if times else each for each in chosen]
    with get_client(sync_client=True) as client:
        with plain_server_errors():
            client.raise_for_api_version_mismatch()
        for pool in dict.fromkeys(each["work_pool"]["name"] for each in timed):
            ensure_pool(client, pool, say)
        for each in timed:
            _deploy(client, each, switch, say)


def _deployment_of(name: str) -> dict[str, Any]:
    """Make the deployment of a run in a user's file, nightly and paused; workers read the file at this path."""
    run = find_run(name)
    check_sets(run)  # rejects sets of other languages now, not at night
    file, colon, which = name.partition(":")
    path = f"{Path(file).absolute()}{colon}{which}"
    return _nightly(run.name, run.about, "prefect_flows.reproduce", path, "own", "0 2 * * *")


def check_of(name: str) -> dict[str, Any]:
    """Make the deployment of a run's check. Raises BadConfiguration for a run without recorded results."""
    expected_of(name)
    about = f"Repeats {name} in a folder of its own; fails if scores or files are not as recorded."
    return _nightly(name, about, "check_flow.check", name, "check", "0 1 * * *")


def _nightly(name: str, about: str, flow: str, run: str, tag: str, cron: str) -> dict[str, Any]:
    """Make a paused deployment in the form of prefect.yaml."""
    return {
        "name": name,
        "description": about,
        "entrypoint": f"flows.orchestration.{flow}",
        "parameters": {"run": run},
        "tags": [tag],
        "work_pool": {"name": "cpu"},
        "schedules": [{"cron": cron, "timezone": "UTC", "slug": "nightly", "active": False}],
    }


def own_times(cron: str, every: str) -> Times | None:
    """Parse the user's times: ``0 22 * * 5`` or ``6h``; None if both are empty. Raises BadConfiguration."""
    if seconds := seconds_of(every):
        return IntervalSchedule(interval=timedelta(seconds=seconds), timezone="UTC")
    if every:
        raise BadConfiguration(f"--every is {every!r}, allowed is a number of minutes, hours or days: 30m, 6h, 2d")
    try:
        if len(cron.split()) > 5:  # croniter also takes seconds
            raise ValueError
        return CronSchedule(cron=cron, timezone="UTC") if cron else None
    except ValueError as error:
        raise BadConfiguration(
            f"--cron is {cron!r}, allowed are minute, hour, day of the month, month and day of the week in UTC, "
            "each a number, a list or *: '0 22 * * 5' is every Friday at 22:00"
        ) from error


def ensure_pool(client: SyncPrefectClient, name: str, say: Callable[[str], None]) -> None:
    """Create the pool, or lock the job variables of an existing one."""
    try:
        pool = client.read_work_pool(name)
    except ObjectNotFound:
        with suppress(ObjectAlreadyExists):  # another process created it at the same time
            client.create_work_pool(WorkPoolCreate(name=name, type=TYPE, base_job_template=TEMPLATE))
        worker = f"REPRO_ROOT=/path PYTHONSAFEPATH=1 prefect worker start --pool {name}"
        say(f"created work pool {name}; start a worker with {worker}")
    else:
        if pool.type == TYPE and pool.base_job_template != TEMPLATE:
            client.update_work_pool(name, WorkPoolUpdate(base_job_template=TEMPLATE))
            say(f"updated work pool {name}: flow runs can no longer override how its worker starts them")


def _deploy(
    client: SyncPrefectClient, declared: dict[str, Any], switch: ScheduleSwitch, say: Callable[[str], None]
) -> None:
    # Prefect's own loader searches the working folder first, where a tasks.py would shadow ours.
    module, _, function = declared["entrypoint"].rpartition(".")
    flow: Flow[..., Any] = getattr(import_module(module), function)
    label = f"{flow.name}/{declared['name']}"
    before = _read_deployment(client, label)
    existing = _schedules_of(before)
    kept_settings = {"overrides": before.parameters["overrides"]} if before and "overrides" in before.parameters else {}
    parameters = kept_settings | declared["parameters"]
    deployment = RunnerDeployment.from_flow(
        flow,
        declared["name"],
        parameters=parameters,
        paused=bool(before and before.paused and switch != "on"),
        description=declared["description"],
        tags=declared["tags"],
        work_pool_name=declared["work_pool"]["name"],
        # By module: on a worker's machine the project may be at another path.
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    wanted = {each["slug"]: each for each in declared.get("schedules", ())}
    if OWN_TIMES in existing and OWN_TIMES not in wanted:
        wanted = {OWN_TIMES: {"times": existing[OWN_TIMES].schedule}}
    schedules: dict[str, dict[str, Any]] = {}
    for slug, each in wanted.items():
        known = existing.get(slug)  # perhaps with times that were changed in Prefect's page
        given = each.get("times") or (known.schedule if known else None)
        times = given or CronSchedule(cron=each["cron"], timezone=each["timezone"])
        schedules[slug] = {"schedule": times, "active": known.active if known else each.get("active", True)}
    for slug, schedule in existing.items():
        if not schedule.slug or slug.startswith(FROM_PAGE):
            kept = {"schedule": schedule.schedule, "active": schedule.active, "parameters": schedule.parameters}
            schedules[slug if schedule.slug else f"{FROM_PAGE}{slug}"] = kept
    deployment.apply(schedules=[{"slug": slug, **each} for slug, each in schedules.items()])
    made = client.read_deployment_by_name(label)
    for slug, schedule in _schedules_of(made).items():
        if slug not in schedules:
            client.delete_deployment_schedule(made.id, schedule.id)
        elif switch == "off" or (switch == "on" and slug in wanted):
            client.update_deployment_schedule(made.id, schedule.id, active=switch == "on")
    states = [
        f"{_in_words(each.schedule)} {'active' if each.active else 'paused'}"
        for each in _schedules_of(_read_deployment(client, label)).values()
    ]
    settings = as_options(parameters.get("overrides", ()))
    say(f"{label}{settings}: pool {declared['work_pool']['name']}, schedule {', '.join(states) or 'none'}")


def _in_words(times: Any) -> str:
    if isinstance(times, IntervalSchedule):
        return f"every {times.interval}"
    zone = "" if times.timezone in (None, "UTC") else f" {times.timezone}"
    return f"{times.cron if isinstance(times, CronSchedule) else times.rrule}{zone}"


def _read_deployment(client: SyncPrefectClient, label: str) -> DeploymentResponse | None:
    with suppress(ObjectNotFound):
        return client.read_deployment_by_name(label)
    return None


def _schedules_of(deployment: DeploymentResponse | None) -> dict[str, DeploymentSchedule]:
    """The schedules of a deployment by slug."""
    return {each.slug or f"{each.id}": each for each in deployment.schedules} if deployment else {}
