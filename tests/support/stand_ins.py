"""Servers and workers that answer at once: packages by the names of the real programs that do nothing but that.

Put before the real ones on the path of a service's children, so that its supervision can be tested in seconds.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.servers.loopback import free_ports
from infra.servers.service_settings import Service
from infra.service import lifecycle
from infra.service.process_tags import tagged_pids

SERVER = """
import http.server, os, pathlib, subprocess, sys

class Well(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path.endswith("/health") else 404)
        self.end_headers()

here = pathlib.Path(os.environ["STAND_IN"])
name = "worker" if "worker" in sys.argv else next(word for word in sys.argv if ":" in word).partition(":")[2]
print(name, "begins in", os.getcwd(), flush=True)
if (here / f"{name}.fails").exists():
    sys.exit("there is no such thing")
port = os.environ["PREFECT_WORKER_WEBSERVER_PORT"] if name == "worker" else sys.argv[sys.argv.index("--port") + 1]
# As Prefect does with flow runs, and MLflow with uvicorn.
subprocess.Popen(["sleep", "600"], start_new_session=True)
http.server.HTTPServer(("127.0.0.1", int(port)), Well).serve_forever()
"""
UVICORN = """
import http.server, json, os, pathlib, random, sys
if "SEEN" in os.environ:
    pathlib.Path(os.environ["SEEN"]).write_text(json.dumps([sys.argv, sys.path]))

class Well(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Well).serve_forever()
"""
"""The module ``uvicorn`` of a server without supervision, which starts at once and answers health checks only."""
PREFECT = {
    "exceptions.py": "class PrefectException(Exception): ...",
    "states.py": "Cancelled = Crashed = None",
    "client/orchestration.py": "def get_client(**_): raise ConnectionError",
    "client/schemas/objects.py": "StateType = None",
}


def stand_in(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Let services that are started from now on have stand-ins, which look into ``folder`` whether they are to fail."""
    for program in ("prefect", "uvicorn"):
        package = folder / "path" / program
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(SERVER)
    # What ``infra.servers.prefect_states`` imports of Prefect, whose server then does not answer.
    for name, code in PREFECT.items():
        module = folder / "path" / "prefect" / name
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(code)
    patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [f"{folder / 'path'}", os.environ.get("PYTHONPATH", "")])))
    patch.setenv("STAND_IN", str(folder))


def free_service(place: Path, cpu_workers: int = 1, gpu_workers: int = 0) -> Service:
    """A service on ports that are free."""
    prefect, mlflow = free_ports(2)
    return Service(place, "", "127.0.0.1", prefect, mlflow, cpu_workers, gpu_workers)


@contextmanager
def ended(place: Path) -> Iterator[None]:
    """Whatever happens inside, no process of the service in ``place`` stays."""
    folder = place / "service"
    try:
        yield
    finally:
        lifecycle.down(folder, print)
        assert not tagged_pids(folder)
