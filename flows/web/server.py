"""Runs the application under uvicorn: the socket, connection timeouts and an orderly shutdown.

The server closes connections that are slow to send a request and, above the limit, those that have been idle longest.
After a signal it accepts nothing new, finishes the open requests and returns, at the latest after a time limit.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from flows.web.limits import Limits
from infra.errors import BadConfiguration

BACKLOG = 1024
KEEP_ALIVE_SECONDS = 15


def bind_socket(host: str, port: int) -> socket.socket:
    """Bind a socket (port 0: any free one) without listening. Raises BadConfiguration if the address is not free."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        raise BadConfiguration(f"cannot serve at {host}, port {port}: {error.strerror or error}") from error
    return bound


def address(host: str, bound: socket.socket) -> str:
    """The URL of a bound socket."""
    port = bound.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class TimeoutProtocol(H11Protocol):
    """A connection with timeouts: ``limits.header_seconds`` for the head of a request and ``limits.unread_seconds``
    for the client to read the response."""

    limits = Limits()
    idle: dict["TimeoutProtocol", None]
    """Connections without an open request, the longest idle first."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.header_timer: asyncio.TimerHandle | None = None
        self.unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_header_timer()
        while len(self.connections) > self.limits.connections and self.idle:
            next(iter(self.idle))._abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_header_timer()
        self._stop_unread_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stop_unread_timer()
        self.unread_timer = self.loop.call_later(self.limits.unread_seconds, self._abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_unread_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_header_timer()
        elif self.header_timer is None and not self.transport.is_closing():
            self._start_header_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete):
            self.idle[self] = None

    def _start_header_timer(self) -> None:
        self.idle[self] = None
        self.header_timer = self.loop.call_later(self.limits.header_seconds, self._abort)

    def _stop_header_timer(self) -> None:
        self.idle.pop(self, None)
        if self.header_timer is not None:
            self.header_timer.cancel()
            self.header_timer = None

    def _stop_unread_timer(self) -> None:
        if self.unread_timer is not None:
            self.unread_timer.cancel()
            self.unread_timer = None

    def _abort(self) -> None:
        self._stop_header_timer()
        self._stop_unread_timer()
        self.connections.discard(self)
        self.transport.abort()


class Server(uvicorn.Server):
    """A uvicorn server that shuts down in order at the first signal and at once at the second, without raising."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
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


def server(application: ASGIApp, limits: Limits, ready: Callable[[], None]) -> Server:
    """Build a server; it calls ``ready`` when it answers requests."""
    protocol = type("ConfiguredProtocol", (TimeoutProtocol,), {"limits": limits, "idle": {}})
    config = uvicorn.Config(
        application,
        http=protocol,
        ws="none",
        lifespan="on",
        loop="asyncio",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=limits.stop_seconds,
    )
    return Server(config, ready)


def serve(application: ASGIApp, bound: socket.socket, limits: Limits, ready: Callable[[], None]) -> None:
    """Serve until a signal; open requests then have ``limits.stop_seconds`` to finish."""
    server(application, limits, ready).run(sockets=[bound])


def end_at_once() -> None:
    """Exit the process although the model's thread is still in a search whose result nobody needs."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
