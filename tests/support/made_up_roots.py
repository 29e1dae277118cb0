"""Small roots whose artifacts and records of runs are made up: nothing is computed."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from sealing import sealed

from infra.store.store import Artifact, Store


def artifact(store: Store, stage: str, key: str, made_from: Sequence[Artifact] = (), **changes: Any) -> Artifact:
    """An artifact of ``stage`` made from others."""
    inputs = {f"{each.stage}/{each.key}": each.content for each in made_from}
    return sealed(store, key, {"data.txt": f"{stage} {key}".encode()}, stage=stage, inputs=inputs, **changes)


def chain(store: Store, text: Artifact, suffix: str = "", facts: Mapping[str, Any] | None = None) -> list[Artifact]:
    """Cleaned text, weights, scores and a registration, each made from the one before."""
    cleaned = artifact(store, "clean", f"c0ffee{suffix}", [text])
    weights = artifact(store, "average", f"a0ffee{suffix}", [cleaned])
    scores = artifact(store, "score", f"50ffee{suffix}", [weights], item="test")
    arguments = {"report": {"artifact": "report", "key": "gone"}}
    registered = artifact(
        store, "register", f"40ffee{suffix}", [weights, scores], facts=facts or {}, arguments=arguments
    )
    return [text, cleaned, weights, scores, registered]


def record(root: Path, run: str, started: datetime, rows: Sequence[Mapping[str, Any]], **changes: Any) -> Path:
    """A record of a run; ``rows`` are its stages, ``changes`` replace other fields."""
    asked = {"run": run, "from_stage": "", "until": "", "force": [], "site": "local"}
    fields = {"run": run, "overrides": [], "outcome": "FINISHED", "who": "ann", "commit": "", "process": ""}
    stages = [{"item": "", "key": "", "state": "completed", "seconds": 1.0, "form": {}, **row} for row in rows]
    path = root / "runs" / run / f"{started:%Y%m%dT%H%M%S-%f}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**fields, "asked": asked, "attempt": "", **changes, "stages": stages}, indent=1))
    return path


def row_of(made: Artifact, item: str = "", state: str = "completed") -> dict[str, Any]:
    return {"stage": made.stage, "item": item, "key": made.key, "state": state}
