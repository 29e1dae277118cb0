"""Prefect's servers refuse pages of other origins, also in a real browser, and work pools are locked."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from loopback_mirror import served
from patience import wait_for
from playwright.sync_api import Browser
from prefect.client.orchestration import SyncPrefectClient
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker
from service_server import service_server
from starlette.testclient import TestClient

from flows.orchestration.deploy import ensure_pool
from infra.servers.temporary_prefect import application
from infra.service.applications import TEMPLATE

EVIL = "http://evil.example"
QUICK = {"PREFECT_API_BLOCKS_REGISTER_ON_START": "false"}
PAGE = """<!doctype html><iframe name=frame></iframe>
<form method=post enctype=text/plain action="{target}" target=frame><input name='{name}' value='"}}'></form>"""
ATTACK = """async target => {
  const outcome = async request => { try { return (await request).type } catch (error) { return 'refused' } };
  const body = '{}';
  return [
    await outcome(fetch(target, {method: 'POST', mode: 'no-cors', body})),
    await outcome(fetch(target, {method: 'POST', headers: {'Content-Type': 'application/json'}, body})),
    await outcome(fetch(new URL('/api/health', target))),
    await new Promise(done => {
      const socket = new WebSocket(new URL('/api/events/in', target).href.replace('http', 'ws'));
      socket.onopen = () => done('open');
      socket.onerror = () => done('refused');
    }),
  ];
}"""

OVERRIDES: dict[str, Any] = {
    "command": "/evil",
    "env": {"PATH": "/evil"},
    "env.PATH": "/evil",
    "working_dir": "/evil",
    "stream_output": False,
    "name": "evil",
    "other": 1,
}


@dataclass
class Server:
    """Prefect's server of a service, with a deployment for its pool."""

    url: str
    deployment: str = ""

    def request(self, path: str, body: object = None, method: str = "", **headers: str) -> tuple[int, Any]:
        sent = {"Content-Type": "application/json"} | {key.replace("_", "-"): value for key, value in headers.items()}
        method = method or ("GET" if body is None else "POST")
        answer = httpx.request(method, f"{self.url}/api{path}", content=json.dumps(body), headers=sent, timeout=60)
        return answer.status_code, answer.json() if answer.text[:1] in ("{", "[") else answer.text

    @property
    def start(self) -> str:
        return f"/deployments/{self.deployment}/create_flow_run"

    def flow_runs(self) -> int:
        return int(self.request("/flow_runs/count", {})[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with service_server(tmp_path_factory.mktemp("root"), "prefect", "127.0.0.1", QUICK) as url:
        running = Server(url)
        flow = running.request("/flows/", {"name": "victim"})[1]["id"]
        deployment = {"name": "victim", "flow_id": flow, "work_pool_name": "cpu", "enforce_parameter_schema": False}
        # The server makes its work pools once it answers.
        wait_for(lambda: running.request("/work_pools/cpu")[0] == 200)
        running.deployment = running.request("/deployments/", deployment)[1]["id"]
        yield running


def test_only_programs_and_own_pages_create_flow_runs(server: Server) -> None:
    for kind in ("text/plain", "application/json", "application/x-www-form-urlencoded"):
        for origin in (EVIL, "null"):
            assert server.request(server.start, {}, Content_Type=kind, Origin=origin)[0] == 403
        assert server.request(server.start, {}, Content_Type=kind, Host="evil.example:4200")[0] == 400
    assert server.request("/work_pools/cpu", {"base_job_template": {}}, "PATCH", Origin=EVIL)[0] == 403
    assert server.flow_runs() == 0
    assert server.request(server.start, {})[0] == 201
    assert server.request(server.start, {}, Origin=server.url)[0] == 201
    assert server.flow_runs() == 2


def test_no_flow_run_overrides_how_a_worker_starts_it(server: Server) -> None:
    assert server.request("/work_pools/cpu")[1]["base_job_template"] == TEMPLATE
    before = server.flow_runs()
    for name, value in OVERRIDES.items():
        status, answer = server.request(server.start, {"job_variables": {name: value}})
        assert (status, name in answer["detail"]) == (422, True)
    assert server.flow_runs() == before


def test_a_pool_of_an_earlier_version_is_locked(server: Server) -> None:
    opened = {"base_job_template": ProcessWorker.get_default_base_job_template()}
    assert server.request("/work_pools/cpu", opened, "PATCH")[0] == 204
    with SyncPrefectClient(f"{server.url}/api") as client:
        ensure_pool(client, "cpu", lambda _: None)
    assert server.request("/work_pools/cpu")[1]["base_job_template"] == TEMPLATE


def test_a_worker_ignores_every_job_variable() -> None:
    """Prefect checks the variables of a changed deployment only when a flow run is created."""
    configure = ProcessJobConfiguration.from_template_and_values
    assert asyncio.run(configure(TEMPLATE, OVERRIDES, client=object())) == ProcessJobConfiguration()


def test_the_server_of_a_run_alone_answers_programs_only() -> None:
    client = TestClient(application(), "http://127.0.0.1")
    assert client.get("/api/health").status_code == 200
    for headers, status in (({"Origin": EVIL}, 403), ({"Host": "evil.example"}, 400)):
        assert client.get("/api/health", headers=headers).status_code == status


def test_a_page_of_another_origin_creates_nothing_and_the_own_page_works(server: Server, browser: Browser) -> None:
    target, before = f"{server.url}/api{server.start}", server.flow_runs()
    form = PAGE.format(target=target, name='{"name":"')
    with served({"": form.encode()}) as evil:
        page = browser.new_page()
        page.goto(evil.address.replace("127.0.0.1", "localhost"))
        # A refused no-cors request looks like a success, so the flow runs are counted.
        assert page.evaluate(ATTACK, target) == ["opaque", "refused", "refused", "refused"]
        with page.expect_response(lambda answer: answer.url == target) as answer:
            page.evaluate("document.forms[0].submit()")
        assert answer.value.status == 403
        assert server.flow_runs() == before
        # The page's name for the server may differ from the one in its settings.
        own = server.url.replace("127.0.0.1", "localhost")
        with page.expect_response(lambda answer: answer.url.startswith(f"{own}/api/")) as answer:
            page.goto(f"{own}/deployments")
        assert answer.value.ok
        page.get_by_text("victim").first.wait_for()
