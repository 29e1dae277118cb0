"""A run whose training becomes longer goes on from the finished one, and ends as a run that was longer at once."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from small_pipeline import run_small

from flows.runner.outcome import StageFailed
from flows.runner.request import RunRequest, plan
from flows.views.stage_words import why
from infra.errors import BadConfiguration
from model.training.trainer import Trainer
from tasks.engine.planner import StageResult

SHORT = ("training.updates=60",)
CONTINUE = "training.continue=small/train"


def train_row(rows: list[StageResult]) -> StageResult:
    return next(row for row in rows if row.stage == "train")


def planned(*overrides: str, force: tuple[str, ...] = ()) -> str:
    return why(train_row(plan(RunRequest("small", overrides=overrides, force=force)).rows))


def test_a_longer_training_that_is_killed_on_its_way_goes_on_to_the_same_bytes(
    small: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for folder in (small / "train").iterdir():
        shutil.rmtree(folder)
    run_small(RunRequest("small", overrides=SHORT, until="train"))
    for other in ("training.seed=2", "training.updates=50"):
        assert "goes on" not in planned(other)
    assert "goes on" not in planned(force=("train",))
    (first,) = small.glob("train/*/manifest.json")
    assert f"goes on from update 60 of train-{first.parent.name}" in planned()
    kill_after(90)
    outcome = run_small()
    assert "train goes on from update 60 of train-" in capfd.readouterr().err
    states = {row.stage: row.state for row in outcome.rows}
    assert states.pop("train") == "completed"
    assert {*states.values()} == {"cached"}, "the stages after it have the very weights that they had"
    rows = [
        json.loads(line) for line in (Path(train_row(outcome.rows).path) / "metrics.jsonl").read_text().splitlines()
    ]
    assert [row["done"] for row in rows if "dev_perplexity" in row] == [60, 120]
    made = json.loads((Path(train_row(outcome.rows).path) / "manifest.json").read_text())["manifest"]["made"]
    assert made["origin"] == {"stage": "train", "key": first.parent.name, "done": 60}


def kill_after(update: int) -> None:
    """Kill the training after an update, and its second try too, so that the run fails; then let it be."""
    advance = Trainer.advance_position

    def killed(self: Trainer, *args: object) -> None:
        advance(self, *args)  # type: ignore[arg-type]
        if self.position.update == update:
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.MonkeyPatch.context() as present:
        present.setattr(Trainer, "advance_position", killed)
        with pytest.raises(StageFailed):
            run_small()


def test_a_training_goes_on_with_other_rates_where_that_is_asked_for(small: Path) -> None:
    longer = ("training.updates=150", "training.schedule=linear", "training.dev_every=10")
    (first,) = small.glob("train/*/manifest.json")
    assert f"goes on from update 120 of train-{first.parent.name}" in planned(*longer, CONTINUE)
    row = train_row(run_small(RunRequest("small", overrides=(*longer, CONTINUE), until="train")).rows)
    assert row.facts["updates"] == 150
    assert row.form["continued"] == [{"artifact": "train", "key": first.parent.name}]
    rows = [json.loads(line) for line in (Path(row.path) / "metrics.jsonl").read_text().splitlines()]
    assert [each["done"] for each in rows if "dev_perplexity" in each] == [60, 120, 130, 140, 150]
    further = ("training.updates=150", "training.continue_from=small/train", *longer[1:])
    again = train_row(plan(RunRequest("small", overrides=further)).rows)
    assert again.state == "cached", "both words name one field"


def test_a_training_that_cannot_go_on_says_why(small: Path) -> None:
    same = "allowed is a training of the same training."
    refusals: list[tuple[tuple[str, ...], str]] = [
        ((), "training.updates is 120, allowed is above 120, where train-"),
        (("training.updates=200", "training.minutes=0.001"), "training.minutes is 0.001, allowed is above .*; or 0"),
        (("training.updates=0", "training.epochs=1"), "training.epochs is 1, allowed is above .*; or 0"),
        (("training.updates=200", "training.checkpoint_every=10"), f"{same}checkpoint_every"),
        (("training.updates=200", "training.keep=0", "training.keep_epochs=2"), f"{same}keep_epochs"),
        (("training.updates=200", "training.seed=2"), f"{same}seed: 1 -> 2"),
        (("training.updates=200", "training.target_ends=eos+eos"), f"{same}target_ends"),
        (("training.updates=200", "model.d_ff=64"), "allowed is a training of the same model.d_ff: 32 -> 64"),
        (("training.start=small/1",), "training.continue_from is 'small/train', allowed is empty where training.start"),
    ]
    for overrides, sentence in refusals:
        with pytest.raises(BadConfiguration, match=sentence):
            planned(CONTINUE, *overrides)
    (state,) = small.glob("train/*.state")
    shutil.rmtree(state)
    with pytest.raises(BadConfiguration, match="which left no optimizer state on this machine"):
        planned(CONTINUE, "training.updates=200")
    assert "goes on" not in planned("training.updates=200")
