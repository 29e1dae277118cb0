"""Tests of a real server: connection timeouts, limits and an orderly shutdown."""

import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from web_fake import Fake, served, until

from flows.web.limits import Limits
from flows.web.server import address, bind_socket
from infra.errors import BadConfiguration

PROJECT_ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import sys, time
sys.path.insert(0, "tests/support")
from web_fake import Fake
from flows.web.app import application
from flows.web.limits import Limits
from flows.web.server import address, bind_socket, end_at_once, serve
seconds, bound_seconds = float(sys.argv[1]), int(sys.argv[2])
class Slow(Fake):
    def translate(self, *arguments):
        print("started", flush=True)
        time.sleep(seconds)
        return super().translate(*arguments)
limits = Limits(batch=1, stop_seconds=bound_seconds)
bound = bind_socket("127.0.0.1", 0)
guarded = application([Slow()], limits)
serve(guarded, bound, limits, lambda: print(address("127.0.0.1", bound), flush=True))
if guarded.batcher.busy:
    end_at_once()
"""


def start(seconds: float, stop_seconds: int) -> tuple["subprocess.Popen[str]", str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, f"{seconds}", f"{stop_seconds}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=PROJECT_ROOT,
        env=os.environ | {"PYTHONPATH": str(PROJECT_ROOT)},
    )
    assert process.stdout
    return process, process.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_requests_finish(number: signal.Signals) -> None:
    process, url = start(0.3, stop_seconds=60)
    assert process.stdout
    try:
        with ThreadPoolExecutor(2) as clients:
            paths = ("/api/translate", "/api/translate/stream")
            # One sentence each: the second "started" is that of the second request, which has thus connected.
            responses = [clients.submit(httpx.post, f"{url}{path}", json={"text": "a."}, timeout=60) for path in paths]
            assert process.stdout.readline() == "started\n"
            assert process.stdout.readline() == "started\n"
            process.send_signal(number)
            whole, stream = (each.result() for each in responses)
        assert whole.json()["text"] == "A."
        assert '"done": true' in stream.text
        assert process.wait(60) == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(url)
        assert "Traceback" not in process.communicate()[1]
    finally:
        process.kill()


def test_an_endless_search_does_not_keep_the_server_alive() -> None:
    process, url = start(600, stop_seconds=1)
    assert process.stdout
    try:
        with ThreadPoolExecutor(1) as client:
            response = client.submit(httpx.post, f"{url}/api/translate", json={"text": "a."}, timeout=60)
            assert process.stdout.readline() == "started\n"
            process.terminate()
            assert process.wait(60) == 0
            with pytest.raises(httpx.HTTPError):
                response.result().raise_for_status()
    finally:
        process.kill()


def test_slow_headers_and_bodies_are_closed_and_delay_no_other_request() -> None:
    limits = Limits(header_seconds=0.4, body_seconds=0.4)
    with served([Fake()], limits) as site:
        silent, head, body = (socket.create_connection(("127.0.0.1", site.port), timeout=60) for _ in range(3))
        head.sendall(b"POST /api/translate HTTP/1.1\r\nhost: localhost\r\nx-slow: ")
        body.sendall(b"POST /api/translate HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
        assert httpx.post(f"{site.url}/api/translate", json={"text": "a"}, timeout=60).json()["text"] == "A"
        head.sendall(b"x")
        for slow in (silent, head):
            assert read_until_closed(slow) == b""
        assert b" 408 " in read_until_closed(body)
        again = socket.create_connection(("127.0.0.1", site.port), timeout=60)
        again.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert again.recv(9_000).startswith(b"HTTP/1.1 200")
        again.sendall(b"GET /healthz HTT")
        assert read_until_closed(again).count(b"HTTP/1.1") == 0


def read_until_closed(connection: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    found = b""
    try:
        while data := connection.recv(65_536):
            found += data
    except ConnectionError:
        pass
    return found


def test_silent_connections_are_closed_for_an_active_one() -> None:
    with served([Fake()], Limits(connections=8, header_seconds=600)) as site:
        silent = [socket.create_connection(("127.0.0.1", site.port), timeout=60) for _ in range(40)]
        assert httpx.post(f"{site.url}/api/translate", json={"text": "a"}, timeout=60).json()["text"] == "A"
        assert read_until_closed(silent[0]) == b""
        for connection in silent:
            connection.close()


def test_an_unread_answer_is_dropped() -> None:
    fake = Fake(answer=lambda _: "x" * 40_000_000)
    with served([fake], Limits(unread_seconds=1)) as site:
        unread = socket.socket()
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        unread.connect(("127.0.0.1", site.port))
        content = b'{"text": "a"}'
        head = b"POST /api/translate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        unread.sendall(head + b"content-length: %d\r\n\r\n" % len(content) + content)
        until(lambda: bool(fake.batches))
        fake.answer = str.upper
        with httpx.Client() as client:
            assert client.post(f"{site.url}/api/translate", json={"text": "a"}, timeout=60).json()["text"] == "A"
        until(lambda: not site.server.server_state.tasks)
        unread.close()


def test_a_bound_address_is_refused_in_one_sentence() -> None:
    with bind_socket("127.0.0.1", 0) as bound:
        bound.listen()
        port = bound.getsockname()[1]
        assert address("127.0.0.1", bound) == f"http://127.0.0.1:{port}"
        with pytest.raises(BadConfiguration, match=f"port {port}"):
            bind_socket("127.0.0.1", port)
    with pytest.raises(BadConfiguration, match="no such host"):
        bind_socket("no such host", 0)
