"""Limits the size and time of requests, with a middleware that enforces the limits.

The middleware reads each body within limits of size and time before the application sees the request. It adds headers
to every response, so that no text can run as code in the page.
"""

import asyncio
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flows.inference.sentence_attention import LONGEST

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Limits:
    """Sizes and times."""

    body_bytes: int = 128 * 1024
    characters: int = 10_000
    """Per request."""
    sentences: int = 200
    """Per request."""
    pieces: int = 250
    """Tokens per sentence; the model's own limit may be lower."""
    attention_pieces: int = LONGEST
    """Tokens per side of an attention request."""
    beam: int = 16
    waiting: int = 400
    """Sentences of all requests in the queue."""
    batch: int = 32
    """Sentences that are translated together; 1 turns batching off."""
    gather_seconds: float = 0.004
    """How long an idle server waits for more requests for a batch, if several requests shared the last batch."""
    request_seconds: float = 60.0
    body_seconds: float = 10.0
    connections: int = 500
    """Simultaneous connections; further ones get 503."""
    stop_seconds: int = 65
    """Time of open requests after a signal; longer than ``request_seconds``."""


class RefusedRequest(Exception):
    """A request that gets an error response: a status and one sentence."""

    def __init__(self, status: int, sentence: str, retry_after: int = 0) -> None:
        super().__init__(sentence)
        self.status = status
        self.retry_after = retry_after


class LimitsMiddleware:
    """Enforces ``limits`` around an application."""

    def __init__(self, application: ASGIApp, limits: Limits) -> None:
        self.application = application
        self.limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            body = await self._body(Headers(scope=scope).get("content-length", ""), receive)
        except RefusedRequest as refused:
            # The rest of the body may still be arriving.
            response = JSONResponse({"error": f"{refused}"}, refused.status, {"connection": "close"})
            await response(scope, receive, guarded)
            return
        except ConnectionError:
            return
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        await self.application(scope, replay, guarded)

    async def _body(self, length: str, receive: Receive) -> bytes:
        limit = self.limits.body_bytes
        too_large = RefusedRequest(413, f"the request's body is larger than the {limit:,} bytes that are allowed")
        if length.isdecimal() and int(length) > limit:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ConnectionResetError
                    body += message.get("body", b"")
                    if len(body) > limit:
                        raise too_large
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError as error:
            seconds = self.limits.body_seconds
            raise RefusedRequest(408, f"the request's body did not arrive within {seconds:g} s") from error
