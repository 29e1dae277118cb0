"""Metrics of a job on another machine reach the watch of a run, and each row once."""

import json
from pathlib import Path
from typing import Any

from infra.store.local import LocalStore
from tasks.engine.jobs import READ_SECONDS, RemoteMetrics


def write(folder: Path, *updates: int, end: str = "\n") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text("\n".join(json.dumps({"done": n}) for n in updates) + end)


def test_each_row_is_seen_once_and_also_those_of_a_resumed_job(tmp_path: Path) -> None:
    call: Any = type("Call", (), {"stage": type("Stage", (), {"name": "train"}), "key": "k1"})
    now, seen = [0.0], []
    folder = tmp_path / "train" / "k1.partial-resume-1"

    def watch(_: Any, rows: Any) -> None:
        seen.append([row["done"] for row in rows])

    look = RemoteMetrics(LocalStore(tmp_path), call, watch, lambda: now[0])

    def look_later() -> list[list[int]]:
        now[0] += READ_SECONDS
        look()
        found = seen[:]
        seen.clear()
        return found

    assert look_later() == [], "nothing is there yet"
    write(folder, 10, 20, 30, end="")
    assert look_later() == [[10, 20]], "half a line waits"
    write(folder, 10, 20, 30)
    look()
    assert not seen, "not before the pause is over"
    assert look_later() == [[30]]
    assert look_later() == []
    write(folder, 10, 20)  # the job was lost, and another one resumes from the checkpoint of update 20
    assert look_later() == []
    write(folder, 10, 20, 31)
    assert look_later() == [[31]]
    folder.rename(tmp_path / "train" / "k1")
    assert look_later() == []
