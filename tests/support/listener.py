"""A web server on loopback that keeps the notifications that Prefect posts."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


class Listener(HTTPServer):
    """Receives notifications on loopback."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), NotificationHandler)
        self.posts: list[dict[str, Any]] = []
        self.address = f"http://127.0.0.1:{self.server_port}"

    @classmethod
    @contextlib.contextmanager
    def started(cls) -> Iterator["Listener"]:
        """A listener that answers until the block ends."""
        server = cls()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
        server.server_close()


class NotificationHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Listener)
        assert self.path == "/hidden-word"
        self.server.posts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *words: object) -> None: ...
