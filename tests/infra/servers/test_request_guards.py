"""Only requests of the application's own pages and of programs, under an allowed host name, reach it."""

import socket
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocket

from infra.errors import BadConfiguration
from infra.servers.request_guards import SameOrigin
from infra.servers.service_settings import Service
from infra.servers.temporary_prefect import PREFECT_ORIGINS
from infra.service.applications import MLFLOW_HOSTS, PREFECT_HOSTS, allowed_hosts, allowed_origins

OWN = "127.0.0.1:4200"
EVIL = "http://evil.example"


async def answer(_: Request) -> PlainTextResponse:
    return PlainTextResponse("reached")


async def talk(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text("reached")
    await socket.close()


INNER = Starlette(
    routes=[Route("/", answer, methods=["GET", "POST", "PATCH", "OPTIONS"]), WebSocketRoute("/events", talk)]
)


def status(app: SameOrigin, method: str = "POST", **headers: str) -> int:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return TestClient(app).request(method, "/", headers={"host": OWN, **given}, content="{}").status_code


@pytest.fixture
def app() -> SameOrigin:
    return SameOrigin(INNER, ["localhost"], ["https://box.example"])


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/x-www-form-urlencoded"])
@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "OPTIONS"])
def test_another_origin_is_refused_for_every_method_and_content_type(app: SameOrigin, method: str, kind: str) -> None:
    for origin in (EVIL, "null", "http://127.0.0.1:5000", "http://localhost:4200", f"http://{OWN}.evil.example", ""):
        assert status(app, method, origin=origin, content_type=kind) == 403
    for origin in (f"http://{OWN}", f"https://{OWN}", "https://BOX.example"):
        assert status(app, method, origin=origin, content_type=kind) == 200
    assert status(app, method, content_type=kind) == 200, "a program sends no Origin"


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_without_an_origin_another_site_can_only_open_a_page(app: SameOrigin, site: str) -> None:
    opened = {"sec_fetch_site": site, "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert status(app, "GET", **opened) == 200
    assert status(app, "POST", **opened) == 403
    for other in ({"sec_fetch_mode": "no-cors"}, {"sec_fetch_dest": "iframe"}, {"sec_fetch_dest": "script"}):
        assert status(app, "GET", **opened | other) == 403
    for near in ("same-origin", "none"):
        assert status(app, "POST", sec_fetch_site=near) == 200


@pytest.mark.parametrize("host", ["evil.example:4200", "localhost.evil.example", "", "a b"])
def test_a_foreign_host_name_is_refused(app: SameOrigin, host: str) -> None:
    """A rebound DNS name is the origin of the page that uses it."""
    assert status(app, host=host, origin=f"http://{host}") == 400
    assert status(app, host=host) == 400
    for own in ("localhost:4200", "LOCALHOST", "[::1]:4200"):
        assert status(app, host=own, origin=f"http://{own}") == 200


def test_any_address_is_a_host_but_not_an_origin() -> None:
    """A page has an address as its name only if it was loaded from there."""
    app = SameOrigin(INNER, ["box", "*.lab.example"])
    for host in ("192.0.2.7:4200", "[2001:db8::1]:4200", "BOX:4200", "a.lab.example"):
        assert status(app, host=host) == 200
        assert status(app, host=host, origin="http://192.0.2.8:4200") == 403
    for host in ("192.0.2.7.evil.example", "lab.example.evil.example", "[2001:db8::1].evil.example", "[::1"):
        assert status(app, host=host) == 400


def test_websockets_follow_the_same_rules(app: SameOrigin) -> None:
    client = TestClient(app)
    for headers in ({}, {"origin": f"http://{OWN}"}):
        with client.websocket_connect("/events", headers={"host": OWN, **headers}) as socket:
            assert socket.receive_text() == "reached"
    for headers in ({"origin": EVIL}, {"host": "evil.example", "origin": EVIL}):
        with pytest.raises(WebSocketDenialResponse) as refused, client.websocket_connect("/", headers=headers):
            pass
        assert refused.value.status_code == (400 if "host" in headers else 403)


def test_a_service_accepts_its_own_and_the_configured_hosts(tmp_path: Path) -> None:
    for variable in (PREFECT_HOSTS, MLFLOW_HOSTS):
        assert allowed_hosts(variable, Service(tmp_path), {}) == ["localhost", socket.gethostname()]
        given = {variable: "box.example, *.lab.example,as-mlflow-writes-it:*,[::5]:5000"}
        found = allowed_hosts(variable, Service(tmp_path, host="gpu-box"), given)
        assert {"gpu-box", "box.example", "*.lab.example", "as-mlflow-writes-it", "[::5]"} <= {*found}
        for wrong in ("box.example:http", "http://box", "10.*"):
            with pytest.raises(BadConfiguration, match=variable):
                allowed_hosts(variable, Service(tmp_path), {variable: wrong})
    origins = {PREFECT_ORIGINS: "https://a.example, https://b.example,*"}
    assert allowed_origins(PREFECT_ORIGINS, {PREFECT_ORIGINS: "*"}) == [], "Prefect's own default"
    assert allowed_origins(PREFECT_ORIGINS, {}) == []
    assert allowed_origins(PREFECT_ORIGINS, origins) == ["https://a.example", "https://b.example"]
