"""Metrics of a job on another machine, read from the store while the job runs."""

import json
import time
from collections.abc import Callable
from contextlib import suppress

from infra.errors import NetworkFault
from infra.store.store import Store
from tasks.engine.progress import MetricsWatch
from tasks.engine.stage import StageCall

METRICS = "metrics.jsonl"
READ_SECONDS = 10.0
"""Least pause between two looks; each look at a bucket is a list request and up to two reads."""


class RemoteMetrics:
    """Passes the new rows of an unfinished artifact to ``watch``, where another machine makes it.

    In a folder that machines share, rows are as new as the job's file; in a bucket, as its newest checkpoint.
    """

    def __init__(
        self, store: Store, call: StageCall, watch: MetricsWatch, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.store = store
        self.call = call
        self.watch = watch
        self._clock = clock
        self._next = 0.0
        self._seen = 0

    def __call__(self) -> None:
        """Look for new rows if it is time; raises what the watch raises."""
        if self._clock() < self._next:
            return
        self._next = self._clock() + READ_SECONDS
        rows = [json.loads(line) for line in self._content().split(b"\n")[:-1]]
        new = rows[self._seen :]
        self._seen = len(rows)  # fewer than before where the job resumed from a checkpoint
        if new:
            self.watch(self.call, new)

    def _content(self) -> bytes:
        stage = self.call.stage.name
        key = self.call.key
        with suppress(NetworkFault):
            return self.store.unfinished_file(stage, key, METRICS)
        return b""
