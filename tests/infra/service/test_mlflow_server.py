"""MLflow's server of a service: no page of another origin reaches it, and beyond loopback only those who may do."""

import base64
import http.client
import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from service_server import service_server

pytestmark = pytest.mark.slow
SEARCH = "/api/2.0/mlflow/registered-models/search"
CREATE = "/ajax-api/2.0/mlflow/registered-models/create"
USER = "admin:planted-SECRET-1"
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
    with service_server(tmp_path_factory.mktemp("root"), "mlflow", "127.0.0.1", names) as found:
        yield found


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server as ``repro up --host 0.0.0.0`` starts it."""
    with service_server(tmp_path_factory.mktemp("root"), "mlflow", "0.0.0.0", {"REPRO_AUTH": USER}) as found:
        yield found


@pytest.mark.parametrize("api", ["/api/2.0", "/ajax-api/2.0"])
def test_strangers_read_and_write_nothing(closed: str, api: str) -> None:
    requests: list[tuple[str, object, str]] = [
        ("/", None, "GET"),
        (SEARCH, None, "GET"),
        (CREATE, {"name": "a"}, "POST"),
    ]
    requests += [(f"{api}/mlflow-artifacts/mpu/{step}/0/run/artifacts", body, "POST") for step, body in PARTS.items()]
    place = f"{api}/mlflow-artifacts/artifacts/0/run/artifacts/a.bin"
    requests += [(place, {}, "PUT"), (place, None, "GET"), (place, None, "DELETE")]
    for path, body, method in requests:
        for stranger in ("", "admin:wrong-password", "nobody:planted-SECRET-1"):
            assert status(closed, path, body, stranger, method) == 401
    assert status(closed, SEARCH, user=USER) == 200
    assert status(closed, place, {}, USER, "PUT") == 200
    assert status(closed, place, user=USER) == 200


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
