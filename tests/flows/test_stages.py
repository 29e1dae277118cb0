"""Every stage of a run, called through ``@stage``, seals the files that its readers open."""

from pathlib import Path

import pytest
from toy_stages import Quiet, Untracked

from flows.reproduce import STAGES
from flows.runner.request import RunRequest, plan
from flows.runs import RUNS
from infra.site import Site, open_store
from infra.store.store import Artifact
from model.config import Averaging, Decoding, Training
from model.config.normalise import STANDARD
from tasks.engine.planner import Scope
from tasks.engine.run_settings import RunSettings
from tasks.engine.runner import Runner
from tasks.engine.stage import engine
from tasks.stages.average import average
from tasks.stages.train import train
from tasks.stages.translate import translate
from tasks.stages.translate_text import translate_text

FILES = {
    "prepare_sets": "pairs.parquet",
    "clean": "pairs.parquet",
    "learn_bpe": "tokenizer.json",
    "shard": "00000.arrow",
    "train": "model.json",
    "average": "model.safetensors",
    "translate": "hypotheses.parquet",
    "score": "card.json",
    "report": "report.html",
    "register": "version.json",
}


@pytest.mark.parametrize(("stage", "file"), FILES.items())
def test_a_finished_run_has_the_file_of_each_stage(finished_root: Path, stage: str, file: str) -> None:
    folders = [path for path in (finished_root / stage).iterdir() if "." not in path.name]
    assert folders
    assert all((folder / file).stat().st_size for folder in folders)


@pytest.mark.parametrize("stage", ["train", "average", "translate", "translate_text"])
def test_a_stage_of_the_model_makes_an_artifact(small: Path, stage: str) -> None:
    store = open_store(Site.named())

    def made(name: str, item: str = "") -> Artifact:
        (key,) = (row.key for row in plan(RunRequest("small")).rows if (row.stage, row.item) == (name, item))
        manifest = store.find(name, key)
        assert manifest
        return store.artifact(manifest)

    training = Training(updates=2, batch_tokens=400, checkpoint_every=1, keep=1, dev_every=2)
    decoding = Decoding(beam=1, max_extra=3)
    run, vocabulary = RUNS["small"], made("learn_bpe")
    calls = {
        "train": lambda: train(made("shard", "train"), made("shard", "dev"), vocabulary, run.model, training),
        "average": lambda: average(made("train"), Averaging(1)),
        "translate": lambda: translate(
            made("average"), vocabulary, made("shard", "dev"), made("prepare_sets", "dev"), decoding, STANDARD
        ),
        "translate_text": lambda: translate_text(made("average"), vocabulary, made("clean"), decoding, lines=2),
    }
    with engine(Runner(RunSettings(store, Site.named(), Scope(STAGES), Quiet(), Untracked()))):  # type: ignore[arg-type]
        artifact = calls[stage]()
        assert artifact.folder.is_relative_to(small / stage)
        assert calls[stage]() == artifact
