"""MLflow's server of a service: no page of another origin reaches it, and beyond loopback only those who may do.

Before MLflow 3.11, uploads in parts were not authorised (CVE-2026-2651, GHSA-8c7q-86fq-vvmh); addresses for direct
downloads were not authorised until July 2026 (mlflow#24567).
"""

import base64
import http.client
import json
import socket
from collections.abc import Iterator
from importlib.util import find_spec
from urllib.parse import urlsplit

import pytest
from mlflow_server import mlflow_server

pytestmark = pytest.mark.slow
needs_auth = pytest.mark.skipif(not find_spec("flask_wtf"), reason="NOT RUN: pip install 'mlflow[auth]'")
SEARCH = "/api/2.0/mlflow/registered-models/search"
CREATE = "/ajax-api/2.0/mlflow/registered-models/create"
ADMIN = "admin:planted-SECRET-1"
READER = "reader:planted-SECRET-2"
PARTS = {
    "create": {"path": "a.bin", "num_parts": 1},
    "complete": {"path": "a.bin", "upload_id": "1", "parts": []},
    "abort": {"path": "a.bin", "upload_id": "1"},
}


def status(url: str, path: str, body: object = None, user: str = "", method: str = "", **headers: str) -> int:
    """The status of the answer to ``user``; with a ``body``, to a POST."""
    own = urlsplit(url).netloc
    given = {"Host": own, "Content-Type": "application/json"} | {n.replace("_", "-"): v for n, v in headers.items()}
    if user:
        given["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
    connection = http.client.HTTPConnection(own, timeout=60)
    text = None if body is None else json.dumps(body)
    connection.request(method or ("GET" if body is None else "POST"), path, text, given)
    found = connection.getresponse().status
    connection.close()
    return found


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on loopback."""
    names = {"MLFLOW_SERVER_ALLOWED_HOSTS": "box.example:*,*.lab.example"}
    with mlflow_server(tmp_path_factory.mktemp("root"), "127.0.0.1", names) as found:
        yield found


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server as ``repro up --host 0.0.0.0`` starts it, with a second user."""
    with mlflow_server(tmp_path_factory.mktemp("root"), "0.0.0.0", {"REPRO_AUTH": ADMIN}) as found:
        user, _, password = READER.partition(":")
        made = status(found, "/api/2.0/mlflow/users/create", {"username": user, "password": password}, ADMIN)
        assert made == 200
        yield found


@needs_auth
@pytest.mark.parametrize("api", ["/api/2.0", "/ajax-api/2.0"])
def test_strangers_read_and_write_no_artifact_and_readers_write_none(closed: str, api: str) -> None:
    for step, body in PARTS.items():
        path = f"{api}/mlflow-artifacts/mpu/{step}/0/run/artifacts"
        for stranger in ("", "admin:wrong-password", "nobody:planted-SECRET-1"):
            assert status(closed, path, body, stranger) == 401
        assert status(closed, path, body, READER) == 403
        assert status(closed, path, body, ADMIN) == 501, "artifacts on a disk take no parts"
    for family, method in (("artifacts", "GET"), ("artifacts", "PUT"), ("artifacts", "DELETE"), ("presigned", "GET")):
        path = f"{api}/mlflow-artifacts/{family}/0/run/artifacts/a.bin"
        content = {} if method == "PUT" else None
        assert status(closed, path, content, method=method) == 401
        if method != "GET":
            assert status(closed, path, content, READER, method) == 403


@pytest.mark.parametrize("name", ["10.attacker.example", "192.168.attacker.example", "fd00:evil", "evil.example"])
def test_names_that_look_like_addresses_are_refused(url: str, name: str) -> None:
    for host in (f"{name}:{urlsplit(url).port}", name):
        assert status(url, SEARCH, Host=host) == 400
        assert status(url, CREATE, {"name": "planted"}, Host=host) == 400


def test_loopback_the_machine_itself_addresses_and_configured_names_are_accepted(url: str) -> None:
    own = ("127.0.0.1", "localhost", "[::1]", socket.gethostname(), "10.1.2.3", "[2001:db8::1]", "box.example")
    for name in (*own, "a.lab.example"):
        assert status(url, SEARCH, Host=f"{name}:{urlsplit(url).port}") == 200, name


def test_pages_of_other_local_ports_change_and_read_nothing(url: str) -> None:
    for origin in ("http://localhost:8888", "http://[::1]:8888", "http://evil.example", "null"):
        assert status(url, CREATE, {"name": "planted"}, Origin=origin) == 403, origin
        assert status(url, SEARCH, Origin=origin) == 403, origin
    assert status(url, CREATE, {"name": "planted"}, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors") == 403
    assert status(url, CREATE, {"name": "ours"}, Origin=f"http://{urlsplit(url).netloc}") == 200, "MLflow's own page"
    behind_a_proxy = {"Host": "box.example", "Origin": "https://box.example"}
    assert status(url, CREATE, {"name": "proxied"}, **behind_a_proxy) == 200
    assert status(url, CREATE, {"name": "program"}) == 200, "a program sends no Origin"
