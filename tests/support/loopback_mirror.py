"""A mirror on loopback that serves given files, with faults on demand."""

import http.server
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Mood:
    """The answer to one request. ``cut``: bytes before the connection closes; ``stall``: bytes before it goes silent;
    ``trickle``: bytes sent every 50 ms; ``more``: by how much the announced length is too long."""

    status: int = 200
    cut: int = 1 << 62
    stall: int = 1 << 62
    trickle: int = 0
    more: int = 0
    ranges: bool = True
    wrong: bool = False
    silent_length: bool = False
    range_from: int = -1


@dataclass
class Mirror:
    """``moods``: answers to the next requests for a path; ``always``: the answer to all others."""

    files: Mapping[str, bytes]
    address: str = ""
    moods: dict[str, list[Mood]] = field(default_factory=dict)
    always: Mood = Mood()
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Path and Range of each request."""
    together: int = 0
    """Maximum number of concurrent requests."""
    under_way: int = 0
    lock: Any = field(default_factory=threading.Lock)
    ended: threading.Event = field(default_factory=threading.Event)

    def mood(self, path: str) -> Mood:
        with self.lock:
            left = self.moods.get(path, [])
            return left.pop(0) if left else self.always


def _handler(mirror: Mirror) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, asked = self.path.lstrip("/"), self.headers.get("Range", "")
            mood = mirror.mood(path)
            with mirror.lock:
                mirror.asked.append((path, asked))
                mirror.under_way += 1
                mirror.together = max(mirror.together, mirror.under_way)
            try:
                self._answer(path, asked, mood)
            finally:
                with mirror.lock:
                    mirror.under_way -= 1

        def _answer(self, path: str, asked: str, mood: Mood) -> None:
            if path not in mirror.files or mood.status >= 400:
                self.send_error(mood.status if mood.status >= 400 else 404)
                return
            whole = mirror.files[path]
            data = bytes(255 - byte for byte in whole) if mood.wrong else whole
            ranged = re.fullmatch(r"bytes=(\d+)-", asked) if mood.ranges else None
            begin = int(ranged[1]) if ranged else 0
            if ranged and begin >= len(data):
                self.send_error(416)
                return
            self.send_response(206 if ranged else 200)
            if ranged:
                begin = mood.range_from if mood.range_from >= 0 else begin
                self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
            if not mood.silent_length:
                self.send_header("Content-Length", str(len(data) - begin + mood.more))
            self.end_headers()
            body = data[begin:]
            for begin in range(0, len(body) if mood.trickle else 0, mood.trickle or 1):
                self.wfile.write(body[begin : begin + mood.trickle])
                if mirror.ended.wait(0.05):
                    return
            self.wfile.write(body[: min(mood.cut, mood.stall)])
            self.wfile.flush()
            if mood.stall < len(body):
                mirror.ended.wait(20)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    return Handler


@contextmanager
def served(files: Mapping[str, bytes], always: Mood = Mood()) -> Iterator[Mirror]:
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
