"""MLflow's server of a service beyond loopback serves artifacts, in parts too, only to those who may have them.

Before MLflow 3.11, uploads in parts were not authorised (CVE-2026-2651, GHSA-8c7q-86fq-vvmh); addresses for direct
downloads were not authorised until July 2026 (mlflow#24567).
"""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from mlflow_server import mlflow_server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not find_spec("flask_wtf"), reason="NOT RUN: pip install 'mlflow[auth]'"),
]
ADMIN, READER = "admin:planted-SECRET-1", "reader:planted-SECRET-2"
PARTS = {
    "create": {"path": "a.bin", "num_parts": 1},
    "complete": {"path": "a.bin", "upload_id": "1", "parts": []},
    "abort": {"path": "a.bin", "upload_id": "1"},
}


class Mlflow:
    """The server at ``url``."""

    def __init__(self, url: str) -> None:
        self.url = url

    def status(self, path: str, body: Any = None, user: str = "", method: str = "") -> int:
        """The status of the answer to ``user``; with a ``body``, to a POST."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        if user:
            headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method or None)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mlflow]:
    """Start MLflow's server as ``repro up --host 0.0.0.0`` does, without the other programs."""
    with mlflow_server(tmp_path_factory.mktemp("root"), "0.0.0.0", {"REPRO_AUTH": ADMIN}) as url:
        found = Mlflow(url)
        user, _, password = READER.partition(":")
        assert found.status("/api/2.0/mlflow/users/create", {"username": user, "password": password}, ADMIN) == 200
        yield found


@pytest.mark.parametrize("api", ["/api/2.0", "/ajax-api/2.0"])
@pytest.mark.parametrize("step", PARTS)
def test_an_upload_in_parts_needs_the_right_to_write(mlflow: Mlflow, api: str, step: str) -> None:
    path = f"{api}/mlflow-artifacts/mpu/{step}/0/run/artifacts"
    for stranger in ("", "admin:wrong-password", "nobody:planted-SECRET-1"):
        assert mlflow.status(path, PARTS[step], stranger) == 401
    assert mlflow.status(path, PARTS[step], READER) == 403
    assert mlflow.status(path, PARTS[step], ADMIN) == 501, "artifacts on a disk take no parts"


@pytest.mark.parametrize("api", ["/api/2.0", "/ajax-api/2.0"])
def test_strangers_read_and_write_no_artifact(mlflow: Mlflow, api: str) -> None:
    for family, method in (("artifacts", "GET"), ("artifacts", "PUT"), ("artifacts", "DELETE"), ("presigned", "GET")):
        path = f"{api}/mlflow-artifacts/{family}/0/run/artifacts/a.bin"
        body = {} if method == "PUT" else None
        assert mlflow.status(path, body, method=method) == 401
        if method != "GET":
            assert mlflow.status(path, body, READER, method) == 403
