"""A mirror on loopback that serves given files, with faults on demand."""

import http.server
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Reply:
    """The answer to one request. ``cut``: bytes before the connection closes; ``trickle``: bytes sent every 50 ms;
    ``more``: by how much the announced length is too long."""

    status: int = 200
    cut: int = 1 << 62
    trickle: int = 0
    more: int = 0
    ranges: bool = True
    wrong: bool = False
    silent_length: bool = False
    range_from: int = -1


@dataclass
class Mirror:
    """``replies``: answers to the next requests for a path; ``always``: the answer to all others."""

    files: Mapping[str, bytes]
    address: str = ""
    replies: dict[str, list[Reply]] = field(default_factory=dict)
    always: Reply = Reply()
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Path and Range of each request."""
    max_concurrent: int = 0
    """Maximum number of concurrent requests."""
    in_progress: int = 0
    lock: Any = field(default_factory=threading.Lock)
    ended: threading.Event = field(default_factory=threading.Event)

    def reply(self, path: str) -> Reply:
        with self.lock:
            left = self.replies.get(path, [])
            return left.pop(0) if left else self.always


def _handler(mirror: Mirror) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, byte_range = self.path.lstrip("/"), self.headers.get("Range", "")
            reply = mirror.reply(path)
            with mirror.lock:
                mirror.requests.append((path, byte_range))
                mirror.in_progress += 1
                mirror.max_concurrent = max(mirror.max_concurrent, mirror.in_progress)
            try:
                self._answer(path, byte_range, reply)
            finally:
                with mirror.lock:
                    mirror.in_progress -= 1

        def _answer(self, path: str, byte_range: str, reply: Reply) -> None:
            if path not in mirror.files or reply.status >= 400:
                self.send_error(reply.status if reply.status >= 400 else 404)
                return
            whole = mirror.files[path]
            data = bytes(255 - byte for byte in whole) if reply.wrong else whole
            ranged = re.fullmatch(r"bytes=(\d+)-", byte_range) if reply.ranges else None
            begin = int(ranged[1]) if ranged else 0
            if ranged and begin >= len(data):
                self.send_error(416)
                return
            self.send_response(206 if ranged else 200)
            if ranged:
                begin = reply.range_from if reply.range_from >= 0 else begin
                self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
            if not reply.silent_length:
                self.send_header("Content-Length", str(len(data) - begin + reply.more))
            self.end_headers()
            body = data[begin:]
            for begin in range(0, len(body) if reply.trickle else 0, reply.trickle or 1):
                self.wfile.write(body[begin : begin + reply.trickle])
                if mirror.ended.wait(0.05):
                    return
            self.wfile.write(body[: reply.cut])
            self.wfile.flush()

        def log_message(self, format: str, *args: object) -> None: ...

    return Handler


@contextmanager
def served(files: Mapping[str, bytes], always: Reply = Reply()) -> Iterator[Mirror]:
    mirror = Mirror(files, always=always)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(mirror))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    mirror.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield mirror
    finally:
        mirror.ended.set()
        server.shutdown()
        server.server_close()
