"""A training that begins with a version of the registry: its weights and its vocabulary, and keys that hold them."""

import json
import shutil
from pathlib import Path

import pytest
from small_pipeline import run_small

from flows.runner.request import RunRequest, plan
from flows.views.stage_words import why
from infra.errors import BadConfiguration
from tasks.engine.keys import artifact_key
from tasks.stages.train import train

FROM_FIRST = "training.start=small/1"
CAUTIOUS = ("training.checkpoint_every=1", "training.updates=2", "training.dev_every=1", "training.factor=1e-6")


def planned(*overrides: str) -> tuple[str, str, str]:
    row = next(row for row in plan(RunRequest("small", overrides=overrides)).rows if row.stage == "train")
    return row.key, row.state, why(row)


def test_training_starts_from_the_version_with_its_vocabulary(small: Path) -> None:
    request = RunRequest("small", overrides=(FROM_FIRST, *CAUTIOUS, "vocabulary.size=300"), until="train")
    outcome = run_small(request)
    assert "learn_bpe" not in {row.stage for row in outcome.rows}
    assert {row.state for row in outcome.rows if row.stage == "shard"} == {"cached"}, "the pieces are the version's"
    row = outcome.rows[-1]
    assert (row.stage, row.state) == ("train", "completed")
    lines = [json.loads(line) for line in (Path(row.path) / "metrics.jsonl").read_text().splitlines()]
    first = next(line["dev_perplexity"] for line in lines if "dev_perplexity" in line)
    done = plan(RunRequest("small")).scores["dev"]["perplexity"]
    assert first == pytest.approx(done, rel=0.01)
    from_scratch = run_small(RunRequest("small", overrides=CAUTIOUS, until="train")).rows[-1]
    assert from_scratch.facts["dev_perplexity"] > 1.2 * done


def test_the_weights_enter_the_key_and_their_name_does_not(small: Path) -> None:
    key, state, _ = planned()
    form = next(row.form for row in plan(RunRequest("small")).rows if row.stage == "train")
    assert (state, "start" in form) == ("cached", False)
    assert key == artifact_key("train", train.version, form)
    from_first, state, why = planned(FROM_FIRST)
    assert state == "miss"
    assert "begins with small/1" in why
    assert planned("training.start=small@champion")[0] == planned("training.start=small")[0] == from_first
    run_small(RunRequest("small", overrides=("averaging.count=1",)))  # other weights without another training
    assert len({key, from_first, planned("training.start=small/2")[0]}) == 3


def test_a_start_that_cannot_be_is_refused_before_any_work(small: Path) -> None:
    for overrides, sentence in (
        (("training.start=smal",), "no model 'smal' is registered, there is: small; did you mean small"),
        ((FROM_FIRST, "model.d_ff=64"), "same shape: model.d_ff of small/1 is 32, and of this run 64"),
    ):
        for execute in (plan, run_small):
            with pytest.raises(BadConfiguration, match=sentence):
                execute(RunRequest("small", overrides=overrides, force=("download",)))


@pytest.mark.parametrize(("stage", "file"), [("average", "model.safetensors"), ("learn_bpe", "tokenizer.json")])
def test_what_the_version_was_made_from_must_be_there_as_it_was(small: Path, stage: str, file: str) -> None:
    (folder,) = (path for path in (small / stage).iterdir() if "." not in path.name)
    (folder / file).write_bytes(b"else")
    with pytest.raises(BadConfiguration, match=rf"small/1 was registered from {folder}, but that artifact {file} has"):
        planned(FROM_FIRST)
    shutil.rmtree(folder)
    with pytest.raises(BadConfiguration, match=f"{folder}, but that artifact is not there"):
        planned(FROM_FIRST)
