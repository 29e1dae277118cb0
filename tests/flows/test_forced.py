"""A killed forced training resumes from its checkpoint when the same request is repeated; then it is over."""

import os
import time
from pathlib import Path

from small_pipeline import all_gone, run_small, start_small

from flows.orchestration.dispatch import dispatch
from flows.runner.interrupted import unfinished
from flows.runner.outcome import Outcome
from flows.runner.request import RunRequest, make_plan, plan
from flows.views.stage_words import why
from infra.site import Site
from infra.store.local import LocalStore

FORCED = RunRequest("small", from_stage="shard", until="train")
FIRST_CHECKPOINT = "checkpoints/00000040/model.safetensors"


def states(outcome: Outcome) -> dict[str, str]:
    return {row.stage: row.state for row in outcome.rows if row.stage in ("learn_bpe", "shard", "train")}


def checkpoint_time(outcome: Outcome) -> int:
    (trained,) = (row for row in outcome.rows if row.stage == "train")
    return (Path(trained.path) / FIRST_CHECKPOINT).stat().st_mtime_ns


def test_a_killed_forced_run_is_resumed_and_the_next_starts_from_scratch(small: Path) -> None:
    (before,) = (row for row in plan(RunRequest("small")).rows if row.stage == "train")
    undisturbed = LocalStore(small).find("train", before.key)
    with start_small(Path(os.environ["REPRO_MIRRORS"]), small, from_stage="shard", until="train") as process:
        while not (found := list(small.glob(f"train/*.partial-*/{FIRST_CHECKPOINT}"))):
            assert process.poll() is None
            time.sleep(0.002)
    assert all_gone(small)
    written = found[0].stat().st_mtime_ns
    (left,) = unfinished(Site.named())
    assert left.command == "repro run small --from shard --until train"
    assert states(plan(FORCED)) == {"learn_bpe": "cached", "shard": "cached", "train": "miss"}
    outcome = run_small(FORCED)
    assert states(outcome) == {"learn_bpe": "cached", "shard": "cached", "train": "completed"}
    assert checkpoint_time(outcome) == written, "update 40 was not computed again"
    trained = LocalStore(small).find("train", before.key)
    assert trained
    assert undisturbed
    assert trained.content == undisturbed.content
    assert unfinished(Site.named()) == []
    assert states(plan(FORCED)) == {"learn_bpe": "cached", "shard": "miss", "train": "miss"}
    again = run_small(FORCED)
    assert states(again) == {"learn_bpe": "cached", "shard": "completed", "train": "completed"}
    assert checkpoint_time(again) > written


def test_a_forced_run_killed_after_its_last_stage_is_complete_when_it_is_repeated(small: Path) -> None:
    request = RunRequest("small", force=("clean",), until="clean")
    run_small(request)
    newest = max((small / "runs" / "small").glob("*.json"))
    newest.write_text(newest.read_text().replace('"outcome": "FINISHED"', '"outcome": "KILLED"'))
    assert len(unfinished(Site.named())) == 1
    assert {row.state for row in dispatch(make_plan(request.resolve())).rows} == {"cached"}
    assert unfinished(Site.named()) == []
    assert [why(row) for row in plan(request).rows if row.state == "miss"] == ["forced"]
