"""Runs the application under uvicorn with a limit of connections and an orderly shutdown.

After a signal it accepts no new request, finishes the open ones within a time limit, and returns.
"""

import os
import socket
import sys
from collections.abc import Callable
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from flows.web.limits import Limits
from infra.errors import BadConfiguration

BACKLOG = 1024
KEEP_ALIVE_SECONDS = 15


def bind_socket(host: str, port: int) -> socket.socket:
    """Bind a socket (port 0: any free one); clients wait until it is served.

    Raises BadConfiguration if the address is not free.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)  # else another process could bind it too
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", "") or error
        raise BadConfiguration(f"cannot serve with --host {host} --port {port}: {why}") from error
    return bound


def address(host: str, bound: socket.socket) -> str:
    """The URL of a bound socket."""
    port = bound.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """Calls ``ready`` when it answers; ends in order at the first signal, at once at the second, and never raises."""

    def __init__(self, application: ASGIApp, limits: Limits, ready: Callable[[], None]) -> None:
        config = uvicorn.Config(
            application,
            http="h11",
            ws="none",
            lifespan="on",
            loop="asyncio",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            limit_concurrency=limits.connections,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=limits.stop_seconds,
        )
        super().__init__(config)
        self.ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        # uvicorn's own method also notes the signal, to raise it again after the shutdown.
        self.force_exit = self.should_exit
        self.should_exit = True


def end_at_once() -> None:
    """Exit the process even if the model's thread still runs a search, whose result is no longer needed."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
