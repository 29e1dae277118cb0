"""Reads the log of a training."""

import json
from pathlib import Path
from typing import Any


def metric_rows(metrics: Path) -> list[dict[str, Any]]:
    """One row for each update of ``metrics.jsonl``, in their order; ``done`` is the update.

    A dev check writes a row of its own and a resumed training repeats some: the last value of an update counts.
    """
    rows: dict[int, dict[str, Any]] = {}
    for line in metrics.read_text().splitlines():
        row = json.loads(line)
        if "done" in row:  # the row with the facts of a finished training may have none
            rows.setdefault(int(row["done"]), {}).update(row)
    return [rows[update] for update in sorted(rows)]
