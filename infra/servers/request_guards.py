"""ASGI middlewares that decide who may send requests to this project's servers."""

import base64
import hmac
import ipaddress
import re
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from infra.servers.credentials import Credentials


class SameOrigin:
    """An ASGI middleware that accepts requests of the application's own pages and of programs.

    A Host not in ``hosts`` (``*.example.org`` matches every name below it) gets status 400, which stops DNS rebinding.
    Every IP address is accepted as a Host, because only a page loaded from an address has that address as its Host. An
    Origin that is neither the Host nor in ``origins`` gets status 403 for every method, content type and websocket
    handshake. Programs other than browsers send neither ``Origin`` nor ``Sec-Fetch-Site``, and pass.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str], origins: Collection[str] = ()) -> None:
        self.app = app
        self.named = TrustedHostMiddleware(app, [*hosts], www_redirect=False)
        self.origins = frozenset(origin.lower() for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if not self._is_own(scope.get("method", ""), host, headers):
            await JSONResponse({"error": "requests of other origins are refused"}, 403)(scope, receive, send)
        elif _is_address(host):
            await self.app(scope, receive, send)
        else:
            await self.named(scope, receive, send)

    def _is_own(self, method: str, host: str, headers: Headers) -> bool:
        own = self.origins | {f"http://{host}", f"https://{host}"}  # https where a proxy encrypts
        if origins := headers.getlist("origin"):
            return all(origin.lower() in own for origin in origins)
        if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
            return True
        # A link on another page may open a page here, but no page may embed one or read from it.
        opened = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        return opened and method in ("GET", "HEAD")


def _is_address(host: str) -> bool:
    literal = re.fullmatch(r"(?:\[([\da-f:.]+)\]|([\d.]+))(?::\d+)?", host)
    try:
        ipaddress.ip_address(literal[1] or literal[2] if literal else "")
        return True
    except ValueError:
        return False


class BasicAuth:
    """An ASGI middleware that returns 401 without these credentials, except for the health check at ``open_path``."""

    def __init__(self, app: ASGIApp, credentials: Credentials, open_path: str = "") -> None:
        self.app = app
        self.open_path = open_path
        text = f"{credentials.user}:{credentials.password}"
        self._expected = b"Basic " + base64.b64encode(text.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_open = scope["type"] != "http" or scope["path"] == self.open_path
        if is_open or hmac.compare_digest(Headers(scope=scope).get("authorization", "").encode(), self._expected):
            await self.app(scope, receive, send)
            return
        headers = {"www-authenticate": 'Basic realm="repro", charset="UTF-8"'}
        await JSONResponse({"error": "user and password are missing or wrong"}, 401, headers)(scope, receive, send)
