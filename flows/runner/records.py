"""Records of runs: one JSON file per run under ``<root>/runs/<name>/``. A plan compares with the newest."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.processes.identity import process_identity
from infra.store.files import write_atomically
from infra.tracking.provenance import commit, user
from tasks.engine.planner import StageResult

WORDS = ("run", "from_stage", "until", "force", "site")
"""The fields of a request in its record, beside the overrides."""


def write(
    root: Path,
    name: str,
    asked: Mapping[str, Any],
    rows: Sequence[StageResult],
    outcome: str,
    begun: datetime,
    attempt: str = "",
) -> Path:
    """Record a run, in place of what was recorded when it had ``begun``; returns the file.

    ``asked`` is the request, word by word, ``attempt`` the one that its forced stages belong to; the process that
    writes it counts as the one that runs it.
    """
    stages = [
        {"stage": r.stage, "item": r.item, "key": r.key, "state": r.state, "seconds": r.seconds, "form": r.form}
        for r in rows
    ]
    record = {
        "run": name,
        "overrides": list(asked["overrides"]),
        "outcome": outcome,
        "who": user(),
        "commit": commit(),
        "process": process_identity(),
        "asked": {word: asked[word] for word in WORDS},
        "attempt": attempt,
        "stages": stages,
    }
    return _write_json(root, name, begun, "", record)


def read_header(path: Path) -> dict[str, Any]:
    """What a record says before its stages, which may be long; empty for another kind of file, or a broken one."""
    lines: list[str] = []
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                if line.startswith(' "stages"'):
                    header = json.loads("".join(lines).rstrip().rstrip(",") + "}")
                    return header if "outcome" in header else {}
                lines.append(line)
    except (OSError, ValueError):
        pass
    return {}


def set_outcome(path: Path, outcome: str) -> None:
    """Replace the outcome of a record."""
    write_atomically(
        path, json.dumps({**json.loads(path.read_text()), "outcome": outcome}, indent=1, ensure_ascii=False)
    )


def write_seeds(root: Path, name: str, overrides: Sequence[str], seeds: Mapping[str, Any]) -> Path:
    """Record the results of several seeds of a run; returns the file."""
    record = {**seeds, "overrides": list(overrides), "who": user(), "commit": commit()}
    return _write_json(root, name, datetime.now(UTC), "-seeds", record)


def write_paper(root: Path, name: str, pages: Mapping[str, str], told: Mapping[str, Any]) -> Path:
    """Keep what rows of the paper came to, the newest only: ``paper.json``, and pages by file name. Returns the folder.

    What each row did stands in the records of its run.
    """
    folder = root / record_folder(name)
    folder.mkdir(parents=True, exist_ok=True)
    form = json.dumps({**told, "who": user(), "commit": commit()}, indent=1, ensure_ascii=False)
    for file, text in {**pages, "paper.json": form}.items():
        write_atomically(folder / file, text)
    return folder


def last_arguments(root: Path, name: str) -> dict[tuple[str, str], Any]:
    """The arguments of each (stage, item) in the newest readable record of the run; empty where there is none."""
    for path in sorted((root / record_folder(name)).glob("*.json"), reverse=True):
        try:
            stages = json.loads(path.read_text())["stages"]
            return {(s["stage"], s["item"]): s["form"] for s in stages}
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return {}


def last_keys(root: Path, name: str, stage: str) -> dict[str, str]:
    """Keys of a stage by item in the newest readable record of the run in which all of them were there at the end."""
    for path in sorted((root / record_folder(name)).glob("*.json"), reverse=True):
        try:
            stages = [s for s in json.loads(path.read_text())["stages"] if s["stage"] == stage]
            if stages and all(s["state"] in ("cached", "completed", "hit") for s in stages):
                return {s["item"]: s["key"] for s in stages}
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return {}


def record_folder(name: str) -> str:
    """The folder of a run's records, below the root."""
    return f"runs/{re.sub(r'[^A-Za-z0-9_-]+', '-', name)}"


def _write_json(root: Path, name: str, at: datetime, mark: str, record: Mapping[str, Any]) -> Path:
    folder = root / record_folder(name)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{at:%Y%m%dT%H%M%S-%f}{mark}.json"
    write_atomically(path, json.dumps(record, indent=1, ensure_ascii=False))
    return path
