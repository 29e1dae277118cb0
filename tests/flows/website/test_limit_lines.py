"""Limits over the runs on record, from the records that runs write to the lines on the pages."""

from datetime import UTC, datetime
from pathlib import Path

from flows.inspection.run_history import read_history
from flows.runner import records
from flows.runner.recorded_runs import earlier_values
from flows.website.campaign import limit_lines
from infra.store.local import LocalStore
from infra.store.store import Artifact
from tasks.engine.limits import Limits

REQUEST = {"run": "demo", "from_stage": "", "until": "", "force": (), "site": "local", "overrides": ()}


def start(root: Path, hour: int, bleu: float, *limits: str) -> None:
    """A run whose dev set has this BLEU."""
    earlier = earlier_values(root, "demo")
    judged = Limits.parse(limits, earlier)
    judged.breaches(LocalStore(root), Artifact("score", "key", root, facts={"bleu": bleu}), "dev")
    assert judged.checks[0].earlier == earlier.get("score dev bleu", ())
    started = datetime(2026, 1, 1, hour, tzinfo=UTC)
    records.write(root, "demo", REQUEST, [], "FINISHED", started, checks=judged.checks)


def test_a_limit_has_a_line_over_the_runs_with_its_newest_bound(tmp_path: Path) -> None:
    start(tmp_path, 1, 21.0, "score.dev.bleu >= 20")
    start(tmp_path, 2, 19.0, "warn score.dev.bleu >= 20", "score.dev.chrf >= 1")
    start(tmp_path, 3, 21.5, "warn score.dev.bleu >= 22")
    history = read_history(LocalStore(tmp_path))
    (line,) = limit_lines(history)
    assert (line.run, line.place, line.limit, line.values) == (
        "demo",
        "score dev bleu",
        "bleu >= 22",
        (21.0, 19.0, 21.5),
    )
    assert not line.holds
    assert limit_lines(history, "other") == []


def test_a_fact_with_a_limit_on_each_side_has_two_lines(tmp_path: Path) -> None:
    for hour, bleu in ((1, 21.0), (2, 31.0)):
        start(tmp_path, hour, bleu, "score.dev.bleu >= 20", "score.dev.bleu <= 30")
    lines = limit_lines(read_history(LocalStore(tmp_path)))
    assert {(line.limit, line.values, line.holds) for line in lines} == {
        ("bleu >= 20", (21.0, 31.0), True),
        ("bleu <= 30", (21.0, 31.0), False),
    }
    assert earlier_values(tmp_path, "demo") == {"score dev bleu": (21.0, 31.0)}
