"""Starts a temporary Prefect server for one run of a user without a server.

Prefect can start such a server itself, but a killed run would leave it running, and Ctrl-C would end it before the
run's final state is written. Here the server is a child process that runs during a ``with`` block.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from infra.errors import JobFailed
from infra.processes.children import PROJECT_ROOT, SAFE_PATH, start, terminate_group
from infra.processes.locks import file_lock
from infra.servers.environment import PERSISTENT_LEASES, private_folder
from infra.servers.loopback import free_ports, healthy

if TYPE_CHECKING:
    from starlette.types import ASGIApp

PREFECT_ORIGINS = "PREFECT_SERVER_CORS_ALLOWED_ORIGINS"
"""Prefect's setting: origins whose pages may call the server, separated by commas."""
START_SECONDS = 600.0
"""How long a start may take. A root's first server runs all of Prefect's migrations: 15 s on idle cores."""
POLL_SECONDS = 0.1
KEEP_SECONDS = 0.5
RESTARTS = 5
"""How often an ended server is restarted. After that the run continues without one until Prefect's client fails."""
SETTINGS = {
    "PREFECT_UI_ENABLED": "0",
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT__SERVER_FINAL": "1",
    **PERSISTENT_LEASES,
}
"""Prefect's own settings for a temporary server."""


def serve(factory: str, host: str, port: int, level: str) -> tuple[str, ...]:
    """Return the uvicorn command for the application of ``factory`` (``module:function``); ``level`` is a log level."""
    where = ("--host", host, "--port", str(port), "--log-level", level)
    package = ("--app-dir", str(PROJECT_ROOT))  # uvicorn searches the working folder by default
    return (sys.executable, "-m", "uvicorn", "--factory", factory, *package, *where, "--lifespan", "on")


def start_lock(home: Path) -> Path:
    """Return the lock of a starting server: only one at a time may create the tables of the database in ``home``."""
    return home / "start.lock"


def application() -> "ASGIApp":
    """Return Prefect's API for programs on this machine; it refuses requests from web pages."""
    from prefect.server.api.server import create_app

    from infra.servers.request_guards import SameOrigin

    return SameOrigin(create_app(), ["localhost"])


@contextmanager
def temporary_server(home: Path, say: Callable[[str], None], meanwhile: Callable[[str], None]) -> Iterator[str]:
    """Serve the database under ``home`` on loopback; yields the address of the API. Raises JobFailed.

    ``meanwhile`` is called with the address while the server starts, which takes seconds. A server that ends is
    restarted at the same address, at most ``RESTARTS`` times.
    """
    if not home.exists():
        private_folder(home)
    home.mkdir(parents=True, exist_ok=True)  # fails where private_folder could not
    (port,) = free_ports(1)
    log = home / "server.log"
    with file_lock(start_lock(home), lambda _: None):
        server = _start(port, log)
        try:
            meanwhile(f"http://127.0.0.1:{port}/api")
            _wait_for_health(server, f"http://127.0.0.1:{port}/api/health", log)
        except BaseException:
            terminate_group(server)
            raise
    ended = threading.Event()
    keeper = threading.Thread(target=_keep, args=(server, port, log, ended, say), name="prefect-server", daemon=True)
    keeper.start()
    try:
        yield f"http://127.0.0.1:{port}/api"
    finally:
        ended.set()
        keeper.join()


def _keep(
    server: subprocess.Popen[bytes], port: int, log: Path, ended: threading.Event, say: Callable[[str], None]
) -> None:
    """Restart the running server whenever it ends, and stop it when ``ended`` is set."""
    for restarts_left in reversed(range(RESTARTS + 1)):
        while server.poll() is None and not ended.wait(KEEP_SECONDS):
            pass
        if ended.is_set() or not restarts_left:
            break
        say(f"the run's Prefect server ended with status {server.returncode}; it is started again")
        server = _start(port, log)
    terminate_group(server)


def _start(port: int, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        # No page has this origin. Prefect's default would let every page read its answers.
        environment = {**os.environ, **SAFE_PATH, **SETTINGS, PREFECT_ORIGINS: f"http://127.0.0.1:{port}"}
        return start(serve(f"{__name__}:application", "127.0.0.1", port, "error"), output, environment)


def _wait_for_health(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise JobFailed(f"Prefect's server ended with status {server.returncode} while starting; see {log}")
        if healthy(address):
            return
        time.sleep(POLL_SECONDS)
    raise JobFailed(f"Prefect's server did not answer within {START_SECONDS:.0f} s: repeat the command; see {log}")
