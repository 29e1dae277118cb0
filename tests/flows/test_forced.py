"""A killed forced training resumes from its checkpoint when the same request is repeated; then it is over."""

import os
import subprocess
import sys
import time
from pathlib import Path

from small_pipeline import all_gone, run_small

from flows.orchestration.dispatch import dispatch
from flows.runner.interrupted import unfinished
from flows.runner.outcome import Outcome
from flows.runner.request import RunRequest, plan
from infra.site import Site
from infra.store.local import Store

HERE = Path(__file__).parents[1] / "support"
PIPELINE = f"""
import sys; sys.path.insert(0, {str(HERE)!r})
import pathlib, torch
from flows.runner.request import RunRequest
from flows.runs import RUNS
from small_pipeline import ForkLauncher, run_small, small_run
from tasks.engine import jobs
jobs.LAUNCHERS["local"] = ForkLauncher
RUNS["small"] = small_run(pathlib.Path(sys.argv[1]))
run_small(RunRequest("small", from_stage="shard", until="train"))
"""
FORCED = RunRequest("small", from_stage="shard", until="train")
FIRST_CHECKPOINT = "checkpoints/00000040/model.safetensors"


def killed_in_training(root: Path) -> int:
    """The forced run in a process of its own, killed after a checkpoint; gives the time that this has."""
    mirror = os.environ["REPRO_MIRRORS"]
    process = subprocess.Popen([sys.executable, "-c", PIPELINE, mirror], env=os.environ | {"REPRO_ROOT": str(root)})
    try:
        while not (found := list(root.glob(f"train/*.partial-*/{FIRST_CHECKPOINT}"))):
            assert process.poll() is None
            time.sleep(0.002)
    finally:
        process.kill()
        process.wait()
    assert all_gone(root)
    return found[0].stat().st_mtime_ns


def states(outcome: Outcome) -> dict[str, str]:
    return {row.stage: row.state for row in outcome.rows if row.stage in ("learn_bpe", "shard", "train")}


def checkpoint_time(outcome: Outcome) -> int:
    (trained,) = (row for row in outcome.rows if row.stage == "train")
    return (Path(trained.path) / FIRST_CHECKPOINT).stat().st_mtime_ns


def test_a_forced_run_that_was_killed_goes_on_and_the_next_begins_anew(small: Path) -> None:
    (before,) = (row for row in plan(RunRequest("small")).rows if row.stage == "train")
    undisturbed = Store(small).manifest("train", before.key)
    written = killed_in_training(small)
    (left,) = unfinished(Site.named())
    assert left.command == "repro run small --from shard --until train"
    assert states(plan(FORCED)) == {"learn_bpe": "hit", "shard": "hit", "train": "miss"}
    outcome = run_small(FORCED)
    assert states(outcome) == {"learn_bpe": "cached", "shard": "cached", "train": "completed"}
    assert checkpoint_time(outcome) == written, "update 40 was not made again"
    trained = Store(small).manifest("train", before.key)
    assert trained
    assert undisturbed
    assert trained.content == undisturbed.content
    assert unfinished(Site.named()) == []
    assert states(plan(FORCED)) == {"learn_bpe": "hit", "shard": "miss", "train": "miss"}
    again = run_small(FORCED)
    assert states(again) == {"learn_bpe": "cached", "shard": "completed", "train": "completed"}
    assert checkpoint_time(again) > written


def test_one_that_was_killed_after_its_last_stage_is_over_when_it_is_repeated(small: Path) -> None:
    request = RunRequest("small", force=("report",), until="report")
    run_small(request)
    newest = max((small / "runs" / "small").glob("*.json"))
    newest.write_text(newest.read_text().replace('"outcome": "FINISHED"', '"outcome": "KILLED"'))
    assert len(unfinished(Site.named())) == 1
    assert {row.state for row in dispatch(request.resolve(), has_server=False).rows} == {"cached"}
    assert unfinished(Site.named()) == []
    assert [row.why for row in plan(request).rows if row.state == "miss"] == ["forced"]
