"""Tests of a real server: connection timeouts, limits and an orderly shutdown."""

import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from patience import wait_for
from web_fake import Fake, served

from flows.web.limits import Limits
from flows.web.server import address, bind_socket
from infra.errors import BadConfiguration

PROJECT_ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import sys, time
sys.path.insert(0, "tests/support")
from web_fake import Fake
from flows.web.app import application
from flows.web.batching import Batcher
from flows.web.limits import Limits
from flows.web.server import Server, address, bind_socket, end_at_once
seconds, bound_seconds = float(sys.argv[1]), int(sys.argv[2])
class Slow(Fake):
    def translate(self, *arguments):
        print("started", flush=True)
        time.sleep(seconds)
        return super().translate(*arguments)
limits = Limits(batch=1, stop_seconds=bound_seconds)
bound = bind_socket("127.0.0.1", 0)
batcher = Batcher(limits)
guarded = application([Slow()], batcher)
Server(guarded, limits, lambda: print(address("127.0.0.1", bound), flush=True)).run(sockets=[bound])
if batcher.busy:
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


def test_a_slow_body_is_refused_and_delays_no_other_request() -> None:
    with served([Fake()], Limits(body_seconds=0.4)) as site:
        body = socket.create_connection(("127.0.0.1", site.port), timeout=60)
        body.sendall(b"POST /api/translate HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
        assert httpx.post(f"{site.url}/api/translate", json={"text": "a"}, timeout=60).json()["text"] == "A"
        assert b" 408 " in b"".join(iter(lambda: body.recv(65_536), b"")), "up to the end that the server makes"


def test_connections_beyond_the_limit_are_refused() -> None:
    with served([Fake()], Limits(connections=8)) as site:
        silent = [socket.create_connection(("127.0.0.1", site.port), timeout=60) for _ in range(8)]
        wait_for(lambda: len(site.server.server_state.connections) == 8)
        assert httpx.get(f"{site.url}/healthz").status_code == 503
        for connection in silent:
            connection.close()
        wait_for(lambda: not site.server.server_state.connections)
        assert httpx.get(f"{site.url}/healthz").status_code == 200


def test_a_bound_address_is_refused_in_one_sentence() -> None:
    with bind_socket("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        assert address("127.0.0.1", bound) == f"http://127.0.0.1:{port}"
        with pytest.raises(BadConfiguration, match=f"--port {port}"):
            bind_socket("127.0.0.1", port)


@pytest.mark.parametrize("host", ["no such host", "127.0.0..1", "a" * 64])
def test_a_host_that_is_no_address_is_refused(host: str) -> None:
    with pytest.raises(BadConfiguration, match=f"--host {re.escape(host)} --port 0: ."):
        bind_socket(host, 0)
