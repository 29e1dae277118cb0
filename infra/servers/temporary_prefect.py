"""A temporary Prefect server for one run of a user without a server.

Prefect can start such a server itself, but a killed run would leave it behind, and Ctrl-C would end it before the run's
final state is written. Here the server is a child process that lives as long as a ``with`` block.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from infra.errors import JobFailed
from infra.processes.children import SAFE_PATH, die_with_parent, terminate_group
from infra.processes.locks import file_lock
from infra.servers.loopback import LOOPBACK, free_ports, healthy

if TYPE_CHECKING:
    from starlette.types import ASGIApp

ORIGINS = "PREFECT_SERVER_CORS_ALLOWED_ORIGINS"
"""Prefect's setting: origins whose pages may call the server, separated by commas."""
START_SECONDS = 180.0
"""A fresh database takes 20 s on quiet cores."""
POLL_SECONDS = 0.1
SETTINGS = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
"""Prefect's own settings for a temporary server."""


def serve(factory: str, host: str, port: int, level: str) -> tuple[str, ...]:
    """The uvicorn command that serves what ``factory`` (``module:function``) returns; ``level`` is the log's."""
    where = ("--host", host, "--port", str(port), "--log-level", level)
    package = ("--app-dir", str(Path(__file__).resolve().parents[2]))  # uvicorn searches the working folder by default
    return (sys.executable, "-m", "uvicorn", "--factory", factory, *package, *where, "--lifespan", "on")


def application() -> "ASGIApp":
    """Prefect's API for programs on this machine; requests from web pages are refused."""
    from prefect.server.api.server import create_app

    from infra.servers.same_origin import SameOrigin

    return SameOrigin(create_app(), LOOPBACK)


@contextmanager
def temporary_server(home: Path) -> Iterator[str]:
    """Serve the database under ``home`` on loopback; yields the address of the API. Raises JobFailed."""
    home.mkdir(parents=True, exist_ok=True)
    log = home / "server.log"
    with log.open("ab") as output:
        (port,) = free_ports(1)
        # The lock keeps two runs from creating the tables of a new database at the same time.
        with file_lock(home / "start.lock", lambda _: None):
            server = subprocess.Popen(
                serve("infra.servers.temporary_prefect:application", "127.0.0.1", port, "error"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent(),
                # No page has this origin. Prefect's default would let every page read its answers.
                env={**os.environ, **SAFE_PATH, **SETTINGS, ORIGINS: f"http://127.0.0.1:{port}"},
            )
            try:
                _wait_for_health(server, f"http://127.0.0.1:{port}/api/health", log)
            except BaseException:
                terminate_group(server)
                raise
    try:
        yield f"http://127.0.0.1:{port}/api"
    finally:
        terminate_group(server)


def _wait_for_health(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise JobFailed(f"Prefect's server ended with status {server.returncode} while starting; see {log}")
        if healthy(address):
            return
        time.sleep(POLL_SECONDS)
    raise JobFailed(f"Prefect's server did not answer within {START_SECONDS:.0f} s; see {log}")
