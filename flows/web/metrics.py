"""Counts requests and sentences for Prometheus, which reads them at ``/metrics``."""

import time
from collections.abc import Collection, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flows.web.served_version import ServedVersion

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper ends of the classes of a request's time."""
OTHER = "other"
"""Stands for every path that is no route: a label must not have as many values as clients can think of."""


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self, served: Sequence[ServedVersion]) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter(
            "repro_requests", "Requests by path and status.", ("path", "status"), registry=registry
        )
        self._seconds = Histogram(
            "repro_request_seconds",
            "Seconds from the request to the end of the answer, by path.",
            ("path",),
            buckets=SECONDS,
            registry=registry,
        )
        self._sentences = Counter("repro_sentences", "Translated sentences by version.", ("model",), registry=registry)
        self._search = Counter(
            "repro_search_seconds", "Seconds in which a version translated.", ("model",), registry=registry
        )
        self._waiting = Gauge("repro_waiting_sentences", "Sentences that wait for the model.", registry=registry)
        labels = ("model", "aliases", "source_language", "target_language", "engine")
        versions = Gauge("repro_model_info", "1 for each version that is served.", labels, registry=registry)
        for each in served:
            versions.labels(each.name, ",".join(each.aliases), *each.languages, each.engine).set(1)
            self._sentences.labels(each.name)
            self._search.labels(each.name)

    def count_batch(self, served: ServedVersion, sentences: int, seconds: float) -> None:
        """Count sentences that a version translated together in so many seconds."""
        self._sentences.labels(served.name).inc(sentences)
        self._search.labels(served.name).inc(seconds)

    def measured(self, app: ASGIApp, paths: Collection[str]) -> ASGIApp:
        """``app``, with each HTTP request counted; ``paths`` are those of its routes."""

        async def measure(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            path = scope["path"] if scope["path"] in paths else OTHER
            started = time.monotonic()
            status = "500"

            async def send_and_note(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = f"{message['status']}"
                await send(message)

            try:
                await app(scope, receive, send_and_note)
            finally:
                self._requests.labels(path, status).inc()
                self._seconds.labels(path).observe(time.monotonic() - started)

        return measure

    def page(self, waiting: int) -> Response:
        """All metrics in Prometheus's text format; ``waiting`` is the number of sentences in the queue."""
        self._waiting.set(waiting)
        return Response(generate_latest(self._registry), headers={"content-type": CONTENT_TYPE_LATEST})
