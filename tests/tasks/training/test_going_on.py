"""A longer training that continues a finished one has the files of one from the beginning, byte for byte."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_training import TRAINING, run, write_job

from infra.errors import BadData
from infra.store.store import Artifact
from tasks.engine.stage import Origin
from tasks.training.going_on import begin_from, continues, keep_state


def checkpoints(job: Path) -> dict[str, bytes]:
    return {f"{path.relative_to(job.parent)}": path.read_bytes() for path in job.parent.glob("checkpoints/*/*.s*")}


@pytest.mark.parametrize(
    ("changes", "updates"),
    [
        ({"keep": 4}, 14),  # three of the longer training's checkpoints are the shorter one's
        ({"schedule": "inverse_sqrt", "batching": "packed"}, 21),
        ({"schedule": "paper"}, 20),
        ({"patience": 20, "peak": 1.0, "dev_every": 4, "keep": 1}, 24),  # the best is far behind
        ({"updates": 0, "epochs": 2}, 0),
        (  # some of the longer training's checkpoints are the shorter one's
            {
                "updates": 0,
                "epochs": 2,
                "warmup": 0,
                "warmup_epochs": 1,
                "keep": 0,
                "keep_epochs": 3,
                "checkpoint_every": 2,
            },
            0,
        ),
    ],
)
def test_a_longer_training_equals_one_that_starts_anew(tmp_path: Path, changes: dict[str, Any], updates: int) -> None:
    shorter = replace(TRAINING, **changes)
    longer = replace(shorter, updates=updates, epochs=2 * shorter.epochs)
    first, whole, job = (
        write_job(tmp_path, name=name, training=training)
        for name, training in (("first", shorter), ("whole", longer), ("longer", longer))
    )
    done = run(first)["facts"]["updates"]
    assert continues(longer, shorter, done)
    keep_state(first.parent, "first")
    begin_from(Origin(Artifact("train", "first", first.parent), done), job.parent)
    answer = run(job)
    assert answer["facts"]["target_tokens"] == run(whole)["facts"]["target_tokens"]
    keep_state(job.parent, "longer")
    keep_state(whole.parent, "whole")
    assert checkpoints(job) == checkpoints(whole)
    states = [(tmp_path / f"{name}.state/state.safetensors").read_bytes() for name in ("longer", "whole")]
    assert states[0] == states[1]


def test_a_training_without_patience_continues_one_that_had_it(tmp_path: Path) -> None:
    shorter = replace(TRAINING, updates=10, dev_every=8, patience=3)
    first = write_job(tmp_path, name="first", training=shorter)
    job = write_job(tmp_path, name="longer", training=replace(shorter, updates=24, patience=0))
    run(first)
    keep_state(first.parent, "first")
    begin_from(Origin(Artifact("train", "first", first.parent), 10), job.parent)
    assert run(job)["reason"] == "done"
    assert {path.parts[-2] for path in job.parent.glob("checkpoints/*/model.safetensors")} == {"00000020", "00000024"}
    assert not (job.parent / "checkpoints" / "best.json").exists()


def test_damage_of_the_state_is_no_training_from_the_start(tmp_path: Path) -> None:
    first = write_job(tmp_path, name="first")
    job = write_job(tmp_path, name="longer", training=replace(TRAINING, updates=24))
    done = run(first)["facts"]["updates"]
    asked = json.loads(job.read_text())
    job.write_text(json.dumps(asked | {"config": asked["config"] | {"first_update": done}}))
    keep_state(first.parent, "first")
    origin = Origin(Artifact("train", "first", first.parent), done)
    begin_from(origin, job.parent)
    damage(job.parent / f"checkpoints/{done:08d}/state.safetensors")
    answer = run(job)
    assert (answer["reason"], "no undamaged checkpoint" in answer["message"]) == ("bad_data", True)
    shutil.rmtree(job.parent / "checkpoints")
    damage(tmp_path / "first.state" / "state.safetensors")
    with pytest.raises(BadData, match=f"state.safetensors has changed.*remove {tmp_path}/first.state"):
        begin_from(origin, job.parent)


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("changes", "updates"),
    [({"schedule": "linear"}, 24), ({"schedule": "clock", "minutes": 1.0}, 24), ({}, 12), ({}, 8)],
)
def test_another_training_does_not_go_on_by_itself(changes: dict[str, Any], updates: int) -> None:
    shorter = replace(TRAINING, **changes)
    assert not continues(replace(shorter, updates=updates), shorter, 12)


def test_a_training_that_the_clock_ended_goes_on_if_given_more_time() -> None:
    hurried = replace(TRAINING, updates=24, minutes=1.0)
    for minutes, goes_on in ((0, True), (2.0, True), (1.0, True), (0.5, False)):
        assert continues(replace(hurried, minutes=minutes), hurried, 12) == goes_on
    assert not continues(hurried, replace(hurried, updates=12, minutes=0), 12), "that took more than the minute"


def test_epochs_go_on_from_fewer_epochs_only() -> None:
    epochs = replace(TRAINING, updates=0, epochs=2)
    assert continues(replace(epochs, epochs=3), epochs, 12)
    assert not continues(epochs, epochs, 12)
    assert not continues(epochs, TRAINING, 12), "how many updates an epoch has is not known yet"
