"""The application: routes of the page and of the JSON API over served versions. Documented at ``/docs``.

Pages are the files beside this module, read once, each by its one name; the server has no other path to any file.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Query
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request as HTTPRequest
from starlette.responses import JSONResponse, Response, StreamingResponse

from infra.web.batching import Batcher, QueuedRequest
from infra.web.limits import LOOPBACK, Limits, LimitsMiddleware, RefusedRequest
from infra.web.protocol import AttentionMap, ServedModel
from infra.web.schemas import (
    AttentionImageRequest,
    AttentionRequest,
    AttentionResponse,
    ErrorResponse,
    ModelIndex,
    ModelInfo,
    TranslateRequest,
    TranslateResponse,
    TranslationPlan,
    check_range,
    validation_message,
)

LOG = logging.getLogger(__name__)
PAGES = {"/": "index.html", "/docs": "docs.html"}
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
ERROR_RESPONSES = {code: {"model": ErrorResponse} for code in (404, 413, 422, 429, 504)}
CLIENT_CLOSED_REQUEST = 499
"""Nobody reads this status: the client is gone."""

T = TypeVar("T")


class Application(LimitsMiddleware):
    """The guarded application with its queue, for those who end it."""

    def __init__(self, app: FastAPI, batcher: Batcher, limits: Limits, hosts: frozenset[str]) -> None:
        super().__init__(app, limits, hosts)
        self.batcher = batcher


def application(served: Sequence[ServedModel], limits: Limits, hosts: frozenset[str] = LOOPBACK) -> Application:
    """An ASGI application over at least one version; ``hosts`` are the names that it answers to, none: any."""
    batcher = Batcher(limits)

    @asynccontextmanager
    async def working(_: FastAPI) -> AsyncIterator[None]:
        async with batcher:
            yield

    app = FastAPI(title="repro serve", version="1", docs_url=None, redoc_url=None, lifespan=working)
    index = ModelIndex(served, limits)
    _add_pages(app)
    _add_refusals(app)

    @app.get("/healthz")
    async def healthz() -> dict[str, Any]:
        """Whether requests are answered."""
        return {"status": "ready", "models": [each.name for each in served], "waiting": batcher.waiting}

    @app.get("/api/models")
    async def models() -> list[ModelInfo]:
        """The versions that are served, with their languages, their own search and their limits."""
        return index.cards()

    @app.post("/api/translate", responses=ERROR_RESPONSES)  # type: ignore[arg-type]
    async def translate(ask: TranslateRequest, asked: HTTPRequest) -> TranslateResponse:
        """Translate a text; the answer comes whole."""
        plan = await asyncio.to_thread(index.plan, ask)
        request = batcher.submit(plan.served, plan.search, plan.n_best, plan.sentences, share=limits.batch)
        try:
            return plan.translated(await _or_disconnected(asked, _all(request), limits))
        finally:
            request.cancel()

    @app.post("/api/translate/stream", responses=ERROR_RESPONSES, response_class=StreamingResponse)  # type: ignore[arg-type]
    async def stream(ask: TranslateRequest) -> StreamingResponse:
        """Translate a text; each sentence comes as soon as it is done, as a line of JSON.

        The first line holds `model`, `search` and `paragraphs` (lists of sentences), each that follows `paragraph`,
        `sentence` (numbers from 0) and `translated`; the last `done`, or `error`.
        """
        plan = await asyncio.to_thread(index.plan, ask)
        request = batcher.submit(plan.served, plan.search, plan.n_best, plan.sentences)
        return StreamingResponse(_lines(plan, request, limits), media_type="application/x-ndjson")

    @app.post("/api/attention", responses=ERROR_RESPONSES)  # type: ignore[arg-type]
    async def attention(ask: AttentionRequest, asked: HTTPRequest) -> AttentionResponse:
        """The pieces of a sentence and of its translation, and the weights between them by layer and head."""
        served, shown = await _map(ask, asked)
        weights = shown.weights.astype(float).round(4).tolist()
        return AttentionResponse(served.name, ask.kind, shown.rows, shown.columns, weights)

    @app.get("/api/attention.png", responses=ERROR_RESPONSES, response_class=Response)  # type: ignore[arg-type]
    async def picture(ask: Annotated[AttentionImageRequest, Query()], asked: HTTPRequest) -> Response:
        """One map as a picture."""
        served, shown = await _map(ask, asked)
        layers, heads = shown.weights.shape[:2]
        check_range("layer", ask.layer, 0, layers)
        check_range("head", ask.head, 0, heads)
        drawing = batcher.run_exclusively(lambda: served.picture(ask.kind, shown, ask.layer, ask.head, ask.dark))
        return Response(await _or_disconnected(asked, drawing, limits), media_type="image/png")

    async def _map(ask: AttentionRequest, asked: HTTPRequest) -> tuple[ServedModel, AttentionMap]:
        served = index.find(ask.model)
        await asyncio.to_thread(index.check_sides, served, ask)
        source = " ".join(ask.source.split())

        def look() -> AttentionMap:
            target: str | Sequence[int] | None = ask.target if ask.ids is None else ask.ids
            if target is None:
                [own] = served.translate([source], served.search, 1)
                target = own.hypotheses[0].ids[: limits.attention_pieces]
            return served.maps(source, target)[ask.kind]

        try:
            return served, await _or_disconnected(asked, batcher.run_exclusively(look), limits)
        except ValueError as error:
            raise RefusedRequest(422, f"{error}") from error

    return Application(app, batcher, limits, hosts)


async def _all(request: QueuedRequest) -> dict[int, Any]:
    return {number: sentence async for number, sentence in request.answers()}


async def _or_disconnected(asked: HTTPRequest, work: Awaitable[T], limits: Limits) -> T:
    """What ``work`` gives. Raises Refused where it takes too long (504) or the client leaves."""
    doing = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(asked))
    try:
        await asyncio.wait({doing, leaving}, timeout=limits.request_seconds, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        if leaving.done():
            raise RefusedRequest(CLIENT_CLOSED_REQUEST, "the client is gone")
        raise RefusedRequest(504, f"this took longer than the {limits.request_seconds:g} s that are allowed")
    finally:
        doing.cancel()
        leaving.cancel()


async def _disconnected(asked: HTTPRequest) -> None:
    while (await asked.receive())["type"] != "http.disconnect":
        pass


async def _lines(plan: TranslationPlan, request: QueuedRequest, limits: Limits) -> AsyncIterator[bytes]:
    begun = time.monotonic()
    try:
        yield _line({"model": plan.served.name, "search": asdict(plan.search), "paragraphs": plan.paragraphs})
        until, answers, places = (
            asyncio.get_running_loop().time() + limits.request_seconds,
            request.answers(),
            plan.places,
        )
        try:
            for _ in places:
                async with asyncio.timeout_at(until):
                    number, sentence = await anext(answers)
                paragraph, place = places[number]
                yield _line({"paragraph": paragraph, "sentence": place, "translated": asdict(sentence)})
        except TimeoutError:
            yield _line({"error": f"this took longer than the {limits.request_seconds:g} s that are allowed"})
        except Exception:
            yield _line({"error": "this text could not be translated; the server's log says why"})
        else:
            yield _line({"done": True, "seconds": round(time.monotonic() - begun, 3)})
    finally:
        request.cancel()


def _line(values: dict[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=True).encode() + b"\n"


def _add_pages(app: FastAPI) -> None:
    here = Path(__file__).with_name("static")
    files = {file.name: file for file in here.iterdir() if file.suffix in MEDIA_TYPES}
    paths = PAGES | {f"/{name}": name for name in files if not name.endswith(".html")}
    for path, name in paths.items():
        app.add_api_route(path, _page(files[name]), methods=["GET"], include_in_schema=False)


def _page(file: Path) -> Any:
    content, kind = file.read_bytes(), f"{MEDIA_TYPES[file.suffix]}; charset=utf-8"

    async def page() -> Response:
        return Response(content, headers={"content-type": kind, "cache-control": "no-cache"})

    return page


def _add_refusals(app: FastAPI) -> None:
    @app.exception_handler(RefusedRequest)
    async def refused(_: HTTPRequest, error: RefusedRequest) -> JSONResponse:
        later = {"retry-after": f"{error.retry_after}"} if error.retry_after else None
        return JSONResponse({"error": error.sentence}, error.status, headers=later)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: HTTPRequest, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"error": validation_message(error.errors())}, 422)

    @app.exception_handler(HTTPException)
    async def known(_: HTTPRequest, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": f"{error.detail}"}, error.status_code, headers=error.headers)

    @app.exception_handler(Exception)
    async def unknown(_: HTTPRequest, error: Exception) -> JSONResponse:
        LOG.error("a request failed", exc_info=error)
        return JSONResponse({"error": "this could not be done; the server's log says why"}, 500)
