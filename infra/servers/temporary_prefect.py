"""Prefect's own server for the time of one run, where the user has none.

Prefect would start one by itself, but leave it behind when it is killed, and lose it to the Ctrl-C of a terminal while
it still has to be told how the run ended. The same server, then, as a child that lives exactly as long as the block.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from infra.errors import JobFailed
from infra.processes.children import SAFE_PATH, die_with_parent, terminate_group
from infra.processes.locks import file_lock

if TYPE_CHECKING:
    from starlette.types import ASGIApp

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""This machine to itself, as a request's Host names it."""
ORIGINS = "PREFECT_SERVER_CORS_ALLOWED_ORIGINS"
"""Origins whose pages may call a server, separated by commas."""
START_SECONDS = 180.0
"""A fresh database takes 20 s on quiet cores."""
POLL_SECONDS = 0.1
SETTINGS = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
"""What Prefect itself sets for a server of this kind."""


def serve(factory: str, host: str, port: int, level: str) -> tuple[str, ...]:
    """The command that serves the application which ``module:function`` makes; ``level`` is the log's."""
    where = ("--host", host, "--port", str(port), "--log-level", level)
    package = ("--app-dir", str(Path(__file__).resolve().parents[2]))  # uvicorn's default is the working folder
    return (sys.executable, "-m", "uvicorn", "--factory", factory, *package, *where, "--lifespan", "on")


def application() -> "ASGIApp":
    """Prefect's API for programs on this machine: no web page can reach it."""
    from prefect.server.api.server import create_app

    from infra.servers.same_origin import SameOrigin

    return SameOrigin(create_app(), LOOPBACK)


@contextmanager
def temporary_server(home: Path) -> Iterator[str]:
    """Serve the database under ``home`` on loopback; yields the address of the API. Raises JobFailed."""
    home.mkdir(parents=True, exist_ok=True)
    log = home / "server.log"
    with log.open("ab") as output:
        port = _free_port()
        # Two runs at once make the tables of a fresh database one after the other.
        with file_lock(home / "start.lock", lambda _: None):
            server = subprocess.Popen(
                serve("infra.servers.temporary_prefect:application", "127.0.0.1", port, "error"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent(),
                # No page has this origin: Prefect's own default lets every page read what it answers.
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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for_health(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise JobFailed(f"Prefect's server ended with status {server.returncode} while starting; see {log}")
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(POLL_SECONDS)
    raise JobFailed(f"Prefect's server did not answer within {START_SECONDS:.0f} s; see {log}")
