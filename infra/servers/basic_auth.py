"""HTTP Basic authentication around an application that has none of its own."""

import base64
import hmac

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from infra.servers.credentials import Credentials


class BasicAuth:
    """An ASGI middleware that answers 401 to requests without these credentials; browsers then ask for them.

    Requests for ``open_path``, where a health check asks, need none.
    """

    def __init__(self, app: ASGIApp, credentials: Credentials, open_path: str = "") -> None:
        self.app = app
        self.open_path = open_path
        text = f"{credentials.user}:{credentials.password}"
        self._expected = "Basic " + base64.b64encode(text.encode()).decode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == self.open_path:
            await self.app(scope, receive, send)
            return
        header = Headers(scope=scope).get("authorization", "")
        if hmac.compare_digest(header.encode(), self._expected.encode()):
            await self.app(scope, receive, send)
            return
        headers = {"www-authenticate": 'Basic realm="repro", charset="UTF-8"'}
        await JSONResponse({"error": "user and password are missing or wrong"}, 401, headers)(scope, receive, send)
