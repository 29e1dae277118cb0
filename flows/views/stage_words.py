"""Puts the result of a stage into words: why it is no hit, what changed since it was made, why it failed."""

from dataclasses import replace
from typing import Any

from flows.runner.outcome import Outcome
from tasks.engine.lookup import Miss, MissReason
from tasks.engine.planner import StageResult

JSON_FIELDS = ("stage", "item", "key", "state", "seconds", "path", "facts")


def why(row: StageResult, is_short: bool = False) -> str:
    """Why a stage has its state: why it is no hit, what changed since it was made, or a failure; "" for no remark.

    The short form names one changed module and counts the others.
    """
    parts = [row.failure, miss_text(row.miss) if row.miss else "", f"{row.origin or ''}"]
    if row.waits_for:
        parts.append(f"runs if the output of {', '.join(row.waits_for)} changes")
    change = row.code_change
    if is_short and len(change.modules) > 1:
        change = replace(change, modules=(change.modules[0], f"{len(change.modules) - 1} more"))
    parts += [f"{change}", *map(str, row.broken), *row.changes]
    return "; ".join(filter(None, parts))


def miss_text(miss: Miss) -> str:
    """Why a call is no hit."""
    match miss.reason:
        case MissReason.DAMAGED:
            return miss.detail
        case MissReason.INPUT_CHANGED:
            return f"the content of {miss.detail} has changed"
        case MissReason.CODE_CHANGED:
            return f"{miss.change}"
        case MissReason.CODE_UNKNOWN:
            return "the artifact does not say by which code it was made"
        case MissReason.EFFECTS_GONE:
            return "the version that it registered is gone or damaged"
        case _:
            return f"{miss.reason}"


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """The outcome of a run or of a plan for ``--json``."""
    stages = [{name: getattr(row, name) for name in JSON_FIELDS} | {"why": why(row)} for row in outcome.rows]
    form = {"run": outcome.run, "stages": stages, "scores": outcome.scores, "model_version": outcome.model_version}
    return form | ({"pruned": outcome.pruned} if outcome.pruned else {})
