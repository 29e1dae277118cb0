"""MLflow's server on loopback answers no page of another origin, and no name that only looks like an address."""

import http.client
import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from mlflow_server import mlflow_server

pytestmark = pytest.mark.slow
SEARCH = "/api/2.0/mlflow/registered-models/search"
CREATE = "/ajax-api/2.0/mlflow/registered-models/create"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    names = {"MLFLOW_SERVER_ALLOWED_HOSTS": "box.example:*,*.lab.example"}
    with mlflow_server(tmp_path_factory.mktemp("root"), "127.0.0.1", names) as found:
        yield found


def status(url: str, host: str, path: str = SEARCH, body: object = None, **headers: str) -> int:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    text = None if body is None else json.dumps(body)
    given = {"Host": host, "Content-Type": "application/json"} | {n.replace("_", "-"): v for n, v in headers.items()}
    connection.request("GET" if body is None else "POST", path, text, given)
    found = connection.getresponse().status
    connection.close()
    return found


def test_names_that_look_like_addresses_are_refused(url: str) -> None:
    port = urlsplit(url).port
    for name in ("10.attacker.example", "192.168.attacker.example", "172.16.evil.example", "fd00:evil", "evil.example"):
        for host in (f"{name}:{port}", name):
            assert status(url, host) == 400, host
            assert status(url, host, CREATE, {"name": "planted"}) == 400, host


def test_loopback_the_machine_itself_addresses_and_configured_names_are_accepted(url: str) -> None:
    port = urlsplit(url).port
    own = ("127.0.0.1", "localhost", "[::1]", socket.gethostname(), "10.1.2.3", "[2001:db8::1]", "box.example")
    for name in (*own, "a.lab.example"):
        assert status(url, f"{name}:{port}") == 200, name


def test_pages_of_other_local_ports_change_and_read_nothing(url: str) -> None:
    own = urlsplit(url).netloc
    for origin in (
        "http://localhost:8888",
        "http://127.0.0.1:8888",
        "http://[::1]:8888",
        "http://evil.example",
        "null",
    ):
        assert status(url, own, CREATE, {"name": "planted"}, Origin=origin) == 403, origin
        assert status(url, own, Origin=origin) == 403, origin
    assert status(url, own, CREATE, {"name": "planted"}, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors") == 403
    assert status(url, own, CREATE, {"name": "ours"}, Origin=f"http://{own}") == 200, "MLflow's own page"
    assert status(url, "box.example", CREATE, {"name": "proxied"}, Origin="https://box.example") == 200, (
        "behind a proxy"
    )
    assert status(url, own, CREATE, {"name": "program"}) == 200, "a program sends no Origin"
