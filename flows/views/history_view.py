"""Shows the recorded runs: one block per start of a run, and a line of totals."""

from collections import Counter
from collections.abc import Iterator, Sequence

from flows.runner.recorded_runs import RecordedRun
from flows.runner.records import KILLED, RUNNING
from infra.tracking.provenance import short_commit
from tasks.durations import duration


def history_text(found: Sequence[RecordedRun]) -> str:
    lines = [line for each in found for line in _block(each)]
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in Counter(each.end for each in found).items())
    whole = duration(sum(map(_seconds, found)))
    return "\n".join([*lines, f"{len(found)} run{'' if len(found) == 1 else 's'} ({outcomes}), {whole} in all"])


def _block(each: RecordedRun) -> Iterator[str]:
    made = sum(stage.was_made for stage in each.stages)
    cached = sum(stage.was_cached for stage in each.stages)
    again = f", start {each.start_number}" if each.start_number > 1 else ""
    counts = f"{made} made, {cached} cached"
    begun = f"{each.started.astimezone():%Y-%m-%d %H:%M}"
    time = f"{duration(_seconds(each))}{' so far' * (each.outcome == RUNNING)}"
    yield "  ".join(filter(None, [begun, each.run, f"{each.end}{again}", counts, time]))
    commit = f", commit {short_commit(each.commit)}" if each.commit else ""
    of = f"  {each.part}" if each.part else ""
    yield f"    {each.command}{of}  by {each.who or 'unknown'}{commit}"
    if each.failure:
        yield f"    {each.failure}"
    for stage in each.stages:
        for failure in stage.tried_again_after:
            yield f"    {stage.label} was tried again after: {failure}"


def _seconds(each: RecordedRun) -> float:
    """Return the time of the stages that were made; for a running or killed run, the time since its start."""
    return each.age if each.outcome == RUNNING or (each.outcome == KILLED and each.ended) else each.seconds
