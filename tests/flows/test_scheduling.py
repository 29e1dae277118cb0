"""Deployments on a real Prefect server, carried out by real workers of two pools that share a bucket alone."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from prefect_house import PrefectHouse
from s3_server import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

RUNS = """
from pathlib import Path
from small_pipeline import small_run
SMALL = small_run(Path({mirror!r}))
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectHouse]:
    """A server with everything deployed, without workers."""
    made = PrefectHouse(tmp_path_factory.mktemp("house"))
    try:
        made.repro("deploy")
        yield made
    finally:
        made.end()


def deployed(house: PrefectHouse) -> dict[str, Any]:
    """What a person sees of pools and deployments, ids included, without the times at which they were looked after."""
    with house.client() as client:
        names = {"id", "name", "flow_id", "parameters", "tags", "description", "work_pool_name", "entrypoint"}
        found = {
            each.name: each.model_dump(mode="json", include=names | {"parameter_openapi_schema"})
            | {"schedules": [(str(s.id), s.slug, s.active, f"{s.schedule}") for s in each.schedules]}
            for each in client.read_deployments()
        }
        pools = {pool.name: str(pool.id) for pool in client.read_work_pools()}
        return {"deployments": found, "pools": pools, "automations": [str(a.id) for a in client.read_automations()]}


def test_deploying_twice_changes_nothing_and_leaves_schedules_as_they_were_switched(house: PrefectHouse) -> None:
    before = deployed(house)
    assert set(before["pools"]) == {"cpu", "gpu"}
    told = house.repro("deploy", "demo", "--activate")
    assert "nightly active" in told
    now = deployed(house)
    ((was, is_),) = zip(before["deployments"]["demo"]["schedules"], now["deployments"]["demo"]["schedules"], strict=True)
    assert is_ == (was[0], was[1], True, was[3])
    house.repro("deploy")
    assert deployed(house) == now, "a schedule that a person activated stays active"
    house.repro("deploy", "demo", "--pause")
    assert deployed(house) == before
    form = before["deployments"]["demo"]["parameter_openapi_schema"]["properties"]
    assert set(form) == {"run", "from_stage", "until", "force", "overrides", "site"}
    assert all(field["title"] and field["description"] for field in form.values())
    assert "train" in form["from_stage"]["enum"]
    assert "train" in form["force"]["items"]["enum"]
    assert form["site"]["enum"] == ["local", "gpu"]
