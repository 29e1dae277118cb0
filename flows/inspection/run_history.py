"""The runs on record: what was asked and by whom, what was cached, what failed and why, what was tried again.

Every start of a run is one record. ``start_number`` counts the starts of one request until it finished. Writes nothing.
"""

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

from flows.runner import records
from flows.runner.recorded_runs import RecordedRun, read_headers, with_stages
from infra.store.store import Store

__all__ = ["RecordedRun", "read_history"]


def read_history(store: Store, run: str = "", since: datetime | None = None) -> list[RecordedRun]:
    """The starts of runs, newest first: of one run, or all for ""; those that began at ``since`` or later.

    A record that cannot be read is left out. Earlier starts count whatever ``since`` is.
    """
    records.receive_records(store, run)
    starts: dict[tuple[Any, ...], int] = {}
    found = []
    for header in [*read_headers(store.root, run)][::-1]:
        request = _request(header)
        starts[request] = starts.get(request, 0) + 1
        if (since is None or header.started >= since) and (whole := with_stages(header)):
            found.append(replace(whole, start_number=starts[request]))
        if header.outcome in (records.FINISHED, "PRUNED"):
            starts.pop(request)
    return found[::-1]


def _request(header: RecordedRun) -> tuple[Any, ...]:
    """What was asked. The first start is found again by it."""
    fields = (json.dumps(header.asked.get(name)) for name in records.REQUEST_FIELDS)
    return (header.run, *header.overrides, None, *fields)
