"""Builds the web application: the page, the JSON API of the served versions, and the API's documentation at ``/docs``.

The files in ``static`` are read once at the start and served under their names; no route opens a path from a request.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request as HTTPRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp

from flows.web.batching import Batcher, QueuedRequest, TranslationFailed
from flows.web.limits import Limits, LimitsMiddleware, RefusedRequest
from flows.web.schemas import (
    AttentionRequest,
    AttentionResponse,
    ErrorResponse,
    ModelIndex,
    ModelInfo,
    SearchSettings,
    TranslateRequest,
    TranslateResponse,
    TranslationPlan,
    validation_message,
)
from flows.web.served_version import ServedVersion
from infra.servers.credentials import Credentials
from infra.servers.loopback import own_names
from infra.servers.request_guards import BasicAuth, SameOrigin
from model.decoding.translation import Search

LOG = logging.getLogger(__name__)
PAGES = {"/": "index.html", "/docs": "docs.html"}
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    code: {"model": ErrorResponse} for code in (404, 413, 422, 429, 504)
}
SHORT_CHARACTERS = 1_000
"""A text of at most this length is split faster than another thread can start."""
CLIENT_CLOSED_REQUEST = 499
"""Status for a client that has disconnected; nobody reads it."""

T = TypeVar("T")


def application(served: Sequence[ServedVersion], batcher: Batcher) -> LimitsMiddleware:
    """Build the ASGI application for at least one version; ``batcher`` is its queue, whose limits it enforces."""
    limits = batcher.limits

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with batcher:
            yield

    app = FastAPI(title="repro serve", version="1", docs_url=None, redoc_url=None, lifespan=lifespan)
    index = ModelIndex(served, limits)
    _add_pages(app)
    _add_error_handlers(app)

    @app.get("/healthz")
    async def healthz() -> dict[str, Any]:
        """Report that the server answers, which versions it serves and how many sentences wait."""
        return {"status": "ready", "models": [each.name for each in served], "waiting": batcher.waiting}

    @app.get("/api/models")
    async def models() -> list[ModelInfo]:
        """List the served versions with their languages, default search and limits."""
        return index.cards()

    @app.post("/api/translate", responses=ERROR_RESPONSES)
    async def translate(body: TranslateRequest, http_request: HTTPRequest) -> TranslateResponse:
        """Translate a text; respond when all sentences are done."""
        plan = await _planned(index, body)
        queued = batcher.submit(plan.served, plan.search, plan.sentences, share=limits.batch)
        try:
            return plan.response(await _or_disconnected(http_request, _all_answers(queued), limits))
        finally:
            queued.cancel()

    @app.post("/api/translate/stream", responses=ERROR_RESPONSES, response_class=StreamingResponse)
    async def stream(body: TranslateRequest) -> StreamingResponse:
        """Translate a text and send each sentence as a line of JSON as soon as it is done.

        The first line holds `model`, `search` and `paragraphs` (lists of sentences). Each further line holds
        `paragraph` and `sentence` (counted from 0) and `translated`. The last line holds `done` or `error`.
        """
        plan = await _planned(index, body)
        queued = batcher.submit(plan.served, plan.search, plan.sentences)
        return StreamingResponse(_stream_lines(plan, queued, limits), media_type="application/x-ndjson")

    @app.post("/api/attention", responses=ERROR_RESPONSES)
    async def attention(body: AttentionRequest, http_request: HTTPRequest) -> AttentionResponse:
        """Return the tokens of a sentence and of its translation, and the attention weights by layer and head."""
        version = index.find(body.model)
        await asyncio.to_thread(index.check_attention, version, body)

        def compute() -> Mapping[str, Any]:
            target: str | Sequence[int] | None = body.target if body.ids is None else body.ids
            if target is None:
                [sentence] = version.translate([body.source], Search(version.decoding, split="never"))
                target = sentence["hypotheses"][0]["ids"][: limits.attention_pieces]
            return version.attention(body.source, target, body.kind)

        try:
            found = await _or_disconnected(http_request, batcher.run_exclusively(compute), limits)
        except ValueError as error:
            raise RefusedRequest(422, f"{error}") from error
        return AttentionResponse(version.name, body.kind, **found)

    return LimitsMiddleware(app, limits)


def protected(app: ASGIApp, host: str, allow_host: Sequence[str], credentials: Credentials | None) -> ASGIApp:
    """Protect an application on ``host`` by checks of the headers Host and Origin, and by a password.

    ``allow_host`` are further names that browsers may use; without ``credentials`` no password is needed.
    """
    hosts = [*own_names(host), *allow_host]
    return SameOrigin(BasicAuth(app, credentials) if credentials else app, hosts)


async def _planned(index: ModelIndex, body: TranslateRequest) -> TranslationPlan:
    """Check and split a text: a long one on a thread, so that it blocks no other request, a short one here."""
    if len(body.text) <= SHORT_CHARACTERS:
        return index.plan(body)
    return await asyncio.to_thread(index.plan, body)


async def _all_answers(queued: QueuedRequest) -> dict[int, Any]:
    return {number: sentence async for number, sentence in queued.answers()}


async def _or_disconnected(http_request: HTTPRequest, work: Awaitable[T], limits: Limits) -> T:
    """Return the result of ``work``. Raises RefusedRequest when it takes too long (504) or the client disconnects."""
    result = asyncio.ensure_future(work)
    disconnected = asyncio.ensure_future(_disconnected(http_request))
    try:
        done, _ = await asyncio.wait(
            {result, disconnected}, timeout=limits.request_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        if result in done:
            return result.result()
        if disconnected in done:
            raise RefusedRequest(CLIENT_CLOSED_REQUEST, "the client has disconnected")
        raise RefusedRequest(504, _too_slow(limits))
    finally:
        result.cancel()
        disconnected.cancel()


async def _disconnected(http_request: HTTPRequest) -> None:
    while (await http_request.receive())["type"] != "http.disconnect":
        pass


def _too_slow(limits: Limits) -> str:
    return f"the request took longer than the {limits.request_seconds:g} s that are allowed; send less text"


async def _stream_lines(plan: TranslationPlan, queued: QueuedRequest, limits: Limits) -> AsyncIterator[bytes]:
    started = time.monotonic()
    try:
        yield _json_line(
            {"model": plan.served.name, "search": asdict(SearchSettings.of(plan.search)), "paragraphs": plan.paragraphs}
        )
        deadline = asyncio.get_running_loop().time() + limits.request_seconds
        answers = queued.answers()
        positions = plan.positions
        try:
            for _ in positions:
                async with asyncio.timeout_at(deadline):
                    number, translated = await anext(answers)
                paragraph, sentence = positions[number]
                yield _json_line({"paragraph": paragraph, "sentence": sentence, "translated": translated})
        except TimeoutError:
            yield _json_line({"error": _too_slow(limits)})
        except TranslationFailed:
            yield _json_line({"error": "this text could not be translated; the server's log says why"})
        else:
            yield _json_line({"done": True, "seconds": round(time.monotonic() - started, 3)})
    finally:
        queued.cancel()


def _json_line(values: dict[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=True).encode() + b"\n"


def _add_pages(app: FastAPI) -> None:
    folder = Path(__file__).with_name("static")
    files = {file.name: file for file in folder.iterdir() if file.suffix in MEDIA_TYPES}
    paths = PAGES | {f"/{name}": name for name in files if not name.endswith(".html")}
    for path, name in paths.items():
        app.add_api_route(path, _page(files[name]), methods=["GET"], include_in_schema=False)


def _page(file: Path) -> Any:
    content = file.read_bytes()
    media_type = f"{MEDIA_TYPES[file.suffix]}; charset=utf-8"

    async def page() -> Response:
        return Response(content, headers={"content-type": media_type, "cache-control": "no-cache"})

    return page


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(RefusedRequest)
    async def refused(_: HTTPRequest, error: RefusedRequest) -> JSONResponse:
        headers = {"retry-after": f"{error.retry_after}"} if error.retry_after else None
        return JSONResponse({"error": f"{error}"}, error.status, headers=headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: HTTPRequest, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"error": validation_message(error.errors())}, 422)

    @app.exception_handler(HTTPException)
    async def http_error(_: HTTPRequest, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": f"{error.detail}"}, error.status_code, headers=error.headers)

    @app.exception_handler(Exception)
    async def unexpected(_: HTTPRequest, error: Exception) -> JSONResponse:
        LOG.error("a request failed", exc_info=error)
        return JSONResponse({"error": "this could not be done; the server's log says why"}, 500)
