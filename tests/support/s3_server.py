"""moto's S3 server in its own process on loopback, with faults that a test switches on.

    GET /faults?status=503&code=SlowDown&times=3&match=PUT   answer 503 SlowDown to the next three PUT requests

Run as a program it prints its port and serves until its parent ends.
"""

import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any


class FaultInjector:
    """moto's WSGI application with injected faults."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
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
        if self.left > 0 and self.words.get("match", "") in f"{environ['REQUEST_METHOD']} {path}":
            self.left -= 1
            status, code = self.words["status"], self.words["code"]
            start_response(f"{status} {code}", [("Content-Type", "application/xml")])
            return [f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>".encode()]
        return self.application(environ, start_response)


class Server:
    """Starts and controls the server."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
        assert self.process.stdout
        self.bucket = ""
        self.address = f"http://127.0.0.1:{int(self.process.stdout.readline())}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.address,
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": "hidden-word",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    @cached_property
    def client(self) -> Any:
        """A client independent of the tested code."""
        import botocore.session

        secret = self.environment["AWS_SECRET_ACCESS_KEY"]
        words = {"aws_access_key_id": "someone", "aws_secret_access_key": secret, "region_name": "us-east-1"}
        return botocore.session.get_session().create_client("s3", endpoint_url=self.address, **words)

    def inject_faults(self, **words: str | int) -> int:
        """Inject these faults from now on; gives the number of requests since the last call."""
        with urllib.request.urlopen(f"{self.address}/faults?{urllib.parse.urlencode(words)}") as answer:
            return int(answer.read())

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def serve() -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    application = FaultInjector(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()  # ends when the parent does


if __name__ == "__main__":
    sys.path[:] = [path for path in sys.path if Path(path) != Path(__file__).parent]
    import logging

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    serve()
