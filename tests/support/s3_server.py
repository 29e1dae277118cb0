"""An S3 server in its own process on loopback, with faults that a test switches on: moto's, or one that stands behind.

    GET /faults?status=503&code=SlowDown&times=3&match=PUT   answer 503 SlowDown to the next three PUT requests

Run as a program it prints its port and serves until its parent ends. An address as its argument is that of the server
to which it forwards each request that gets no fault.
"""

import http.client
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

KEY = "someone"
SECRET = "hidden-word"
Application = Callable[..., Iterable[bytes]]


class FaultInjector:
    """A WSGI application with injected faults. ``match`` is a part of the method, the path and the query."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self.words: dict[str, str] = {}
        self.left = 0
        self.requests = 0

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/faults":
            self.words = dict(urllib.parse.parse_qsl(environ.get("QUERY_STRING", "")))
            self.left, counted = int(self.words.get("times", 0)), self.requests
            self.requests = 0
            start_response("200 OK", [])
            return [f"{counted}".encode()]
        self.requests += 1
        request = f"{environ['REQUEST_METHOD']} {path}?{environ.get('QUERY_STRING', '')}"
        if self.left > 0 and self.words.get("match", "") in request:
            self.left -= 1
            status, code = self.words["status"], self.words["code"]
            start_response(f"{status} {code}", [("Content-Type", "application/xml")])
            return [f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>".encode()]
        return self.application(environ, start_response)


def forwarding_to(address: str) -> Application:
    """A WSGI application that passes each request on as it is: the signature covers its Host header too."""

    def forward(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        sent = {name[5:].replace("_", "-"): value for name, value in environ.items() if name.startswith("HTTP_")}
        sent |= {
            name.replace("_", "-"): environ[name] for name in ("CONTENT_TYPE", "CONTENT_LENGTH") if environ.get(name)
        }
        sent.pop("EXPECT", "")  # answered here
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(address).netloc, timeout=120)
        try:
            connection.request(environ["REQUEST_METHOD"], environ["RAW_URI"], body, sent)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        of_connection = ("connection", "transfer-encoding", "keep-alive")
        headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in of_connection]
        start_response(f"{answer.status} {answer.reason}", headers)
        return [content]

    return forward


class Server:
    """Starts and controls the server: moto's, or the one in front of ``behind``."""

    def __init__(self, behind: str = "") -> None:
        command = [sys.executable, __file__, behind]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
        assert self.process.stdout
        self.bucket = ""
        self.address = f"http://127.0.0.1:{int(self.process.stdout.readline())}"

    @property
    def environment(self) -> dict[str, str]:
        return variables_for(self.address)

    @cached_property
    def client(self) -> Any:
        return client_of(self.address)

    def inject_faults(self, **words: str | int) -> int:
        """Inject these faults from now on; gives the number of requests since the last call."""
        with urllib.request.urlopen(f"{self.address}/faults?{urllib.parse.urlencode(words)}") as answer:
            return int(answer.read())

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def variables_for(address: str, key: str = KEY, secret: str = SECRET) -> dict[str, str]:
    """The environment variables that name a server and a user."""
    user = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
    return {"AWS_ENDPOINT_URL": address, "AWS_DEFAULT_REGION": "us-east-1", **user}


def client_of(address: str) -> Any:
    """A client independent of the tested code."""
    import botocore.session

    words = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "region_name": "us-east-1"}
    return botocore.session.get_session().create_client("s3", endpoint_url=address, **words)


def moto() -> Application:
    from moto.server import DomainDispatcherApplication, create_backend_app

    application: Application = DomainDispatcherApplication(create_backend_app)
    return application


def serve(behind: str) -> None:
    from werkzeug.serving import make_server

    application = FaultInjector(forwarding_to(behind) if behind else moto())
    server = make_server("127.0.0.1", 0, application, threaded=True)
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()  # ends when the parent does


if __name__ == "__main__":
    sys.path[:] = [path for path in sys.path if Path(path) != Path(__file__).parent]
    import logging

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    serve(sys.argv[1])
