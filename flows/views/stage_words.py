"""Describes the result of a stage: why it is not cached, what changed since it was made, why it failed."""

from typing import Any

from flows.runner.outcome import Outcome
from tasks.engine.planner import StageResult


def why(row: StageResult, is_short: bool = False) -> str:
    """Say why a stage is not cached, what changed since it was made, or why it failed; "" for no remark.

    The short form omits which code changed: the row's label already says that code changed.
    """
    parts = [row.failure, f"{row.miss or ''}", f"{row.origin or ''}"]
    parts += [f"resumes from update {row.resumes:,}"] if row.resumes else []
    if row.waits_for:
        parts.append(f"runs if the output of {', '.join(row.waits_for)} changes")
    parts += ["" if is_short else f"{row.code_change}", *map(str, row.broken)]
    parts += [change.replace("modified: ", "modified (has --set): ") for change in row.changes]
    return "; ".join(filter(None, parts))


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """Convert the outcome of a run or a plan for ``--json``."""
    names = ("stage", "item", "key", "state", "seconds", "path", "facts")
    stages = [{name: getattr(row, name) for name in names} | {"why": why(row)} for row in outcome.rows]
    return {"run": outcome.run, "stages": stages, "scores": outcome.scores, "model_version": outcome.model_version}
