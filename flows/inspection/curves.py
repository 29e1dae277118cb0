"""The metrics of a training as a table: of a run, of a model version, or of one training artifact."""

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from flows.inspection.compare import find_system, training_of
from flows.runner.artifact_names import is_version, model_manifests
from infra.errors import BadConfiguration
from infra.site import Site, open_store
from infra.store.store import Artifact


def find_training(name: str, site: Site, overrides: Sequence[str] = ()) -> Artifact:
    """The training of ``demo@champion``, ``demo`` or ``demo/train/seed-2``: of a run its own model's.

    Raises BadConfiguration if there is none.
    """
    store = open_store(site)
    if not is_version(name):
        made = model_manifests(store, name, "train", overrides)
        return store.artifact(made.get("") or next(iter(made.values())))
    training = training_of(find_system(name, site), store)
    if not training:
        raise BadConfiguration(f"the training of {name!r} was deleted: run it again, or name another version")
    return training


def training_table(metrics: Path) -> pl.DataFrame:
    """A row for each update that ``metrics.jsonl`` has, a column for each metric; the last value of an update counts.

    Values are null where a metric was not measured.
    """
    rows: dict[int, dict[str, float]] = {}
    for line in metrics.read_text().splitlines():
        row = json.loads(line)
        numbers = {name: float(value) for name, value in row.items() if isinstance(value, int | float)}
        rows.setdefault(int(numbers.pop("done")), {}).update(numbers)
    for values in rows.values():
        values.pop("total", None)
    names = dict.fromkeys(name for values in rows.values() for name in values)
    schema = {"update": pl.Int64, **dict.fromkeys(names, pl.Float64)}
    return pl.DataFrame([{"update": update, **rows[update]} for update in sorted(rows)], schema)
