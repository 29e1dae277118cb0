"""The server's socket, signals and patience: an application in, one exit in order out.

Connections that send nothing whole in time, or are too many, are closed, those first that have waited longest. A signal
stops the server from taking more; what was begun is finished, and only then, or after a bound, does it return.
"""

import asyncio
import contextlib
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from infra.errors import BadConfiguration
from infra.web.limits import Application, Limits

BACKLOG = 1024
KEEP_ALIVE_SECONDS = 15


def bind_socket(host: str, port: int) -> socket.socket:
    """A socket at an address (port 0: any free one), not yet listening. Raises BadConfiguration where it is taken."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        raise BadConfiguration(f"cannot serve at {host}, port {port}: {error.strerror or error}") from error
    return made


def address(host: str, taken: socket.socket) -> str:
    """What is typed into a browser."""
    port = taken.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class TimeoutProtocol(H11Protocol):
    """A connection that is closed where a request's head does not come whole within ``limits.header_seconds``, or an
    answer is not read for ``limits.unread_seconds``."""

    limits = Limits()
    silent: dict["TimeoutProtocol", None]
    """Connections without a request in work, in the order of their last one."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.patience: asyncio.TimerHandle | None = None
        self.unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()
        while len(self.connections) > self.limits.connections and self.silent:
            oldest = next(iter(self.silent))
            oldest._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest()
        self._read_on()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._read_on()
        self.unread = self.loop.call_later(self.limits.unread_seconds, self._end)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._read_on()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._rest()
        elif self.patience is None and not self.transport.is_closing():
            self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete):
            self.silent[self] = None

    def _wait(self) -> None:
        self.silent[self] = None
        self.patience = self.loop.call_later(self.limits.header_seconds, self._end)

    def _rest(self) -> None:
        self.silent.pop(self, None)
        if self.patience is not None:
            self.patience.cancel()
            self.patience = None

    def _read_on(self) -> None:
        if self.unread is not None:
            self.unread.cancel()
            self.unread = None

    def _end(self) -> None:
        self._rest()
        self._read_on()
        self.connections.discard(self)
        self.transport.abort()


class Server(uvicorn.Server):
    """Signals end it in order; a second one at once. It raises nothing for them."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.force_exit = self.should_exit
        self.should_exit = True


def server(application: Application, limits: Limits, ready: Callable[[], None]) -> Server:
    """A server that runs until it is told to stop; ``ready`` is called when requests are answered."""
    protocol = type("PatientHere", (TimeoutProtocol,), {"limits": limits, "silent": {}})
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


def serve(application: Application, taken: socket.socket, limits: Limits, ready: Callable[[], None]) -> None:
    """Serve until a signal comes; what was begun is finished first, for ``limits.stop_seconds`` at most."""
    _raise_open_files()
    server(application, limits, ready).run(sockets=[taken])


def end_at_once() -> None:
    """End the process although a thread is in the middle of a search that nobody waits for any more."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _raise_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)) if hard >= 0 else 4096, hard))
