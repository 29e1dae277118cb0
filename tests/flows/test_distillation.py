"""Distillation in a whole run: what the student is trained on, that it is cached, and that a kill loses one block."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sacrebleu
from small_pipeline import run_small, small_run

from flows.commands.export import export
from flows.inspection.trace import trace_pair
from flows.runner.outcome import StageFailed
from flows.runner.request import RunRequest
from flows.runs import RUNS, Run
from flows.runs.synthetic import Distillation
from infra.site import Site, open_store
from model.config import Decoding
from tasks.registration.lineage import training_text
from tasks.stages import translate_text

pytestmark = pytest.mark.slow


@pytest.fixture
def run(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``small`` as the student of two teachers of its own shape; 600 pairs in blocks of 100."""
    run = small_run(mirror)
    how = Distillation(run.model, seeds=(1, 2), n_best=3, decoding=Decoding(beam=2, max_extra=60))
    training = replace(run.training, updates=40, checkpoint_every=20, dev_every=40)
    student = replace(run.model, d_ff=16)
    run = replace(run, model=student, synthetic=how, training=training)
    monkeypatch.setitem(RUNS, "small", run)
    monkeypatch.setattr(translate_text, "BLOCK_LINES", 100)
    return run


def test_a_killed_translation_goes_on_and_a_student_is_trained_traced_cached_and_exported(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rename = Path.replace

    def die_after_two_blocks(path: Path, target: Any) -> Path:
        moved = rename(path, target)
        if moved.name == "00001.parquet":
            os.kill(os.getpid(), signal.SIGKILL)
        return moved

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", die_after_two_blocks)
        with pytest.raises(StageFailed):
            run_small(RunRequest("small", until="extract_best"))
    root = Path(os.environ["REPRO_ROOT"])
    before = {path.name: path.stat().st_ino for path in root.glob("translate_text/*/*.parquet")}
    assert sorted(before) == ["00000.parquet", "00001.parquet"]

    outcome = run_small(RunRequest("small"))
    folders = {(row.stage, row.item): Path(row.path) for row in outcome.rows}
    facts = {(row.stage, row.item): row.facts for row in outcome.rows}
    blocks = sorted(folders["translate_text", ""].glob("*.parquet"))
    assert len(blocks) > 2
    assert {path.name: path.stat().st_ino for path in blocks[:2]} == before

    clean = pl.read_parquet(folders["clean", ""] / "pairs.parquet")
    translated = pl.concat([pl.read_parquet(path) for path in blocks])
    pairs = pl.read_parquet(folders["extract_best", ""] / "pairs.parquet")
    assert translated["source"].equals(clean["source"])
    assert translated["hypotheses"].list.len().max() == 3, "one more than the beam"
    assert 0 < pairs.height == clean.height - facts["extract_best", ""]["untranslated"]
    references = dict(clean.select("pair_id", "target").iter_rows())
    hypotheses = dict(translated.select("pair_id", "hypotheses").iter_rows())
    for pair_id, target in pairs.select("pair_id", "target").head(20).iter_rows():
        scores = [sacrebleu.sentence_bleu(each, [references[pair_id]]).score for each in hypotheses[pair_id]]
        assert target == hypotheses[pair_id][scores.index(max(scores))]
    assert facts["train", ""]["parameters"] < facts["train", "teacher/seed-1"]["parameters"]
    assert set(pl.scan_ipc(folders["shard", "train"] / "*.arrow").collect()["pair_id"]) <= set(pairs["pair_id"])

    pair_id = next(each for each in pairs["pair_id"] if len(hypotheses[each]) > 1)
    steps = trace_pair("small", pair_id).steps
    assert [step.kind for step in steps] == ["published", "cleaned", "distilled", "encoded", "sharded", "trained"]
    distilled = steps[2].values
    assert [each["text"] for each in distilled["translations"]] == hypotheses[pair_id]
    assert [each["text"] for each in distilled["translations"] if each["taken"]] == [distilled["target"]]
    assert distilled["target"] == pairs.row(by_predicate=pl.col("pair_id") == pair_id)[3]

    (weights,) = (row for row in outcome.rows if (row.stage, row.item) == ("average", ""))
    store = open_store(Site.named())
    manifest = store.find("average", weights.key)
    assert manifest
    assert training_text(store.artifact(manifest))["max_pieces"] == 80

    again = run_small(RunRequest("small"))
    assert {row.state for row in again.rows} == {"cached"}

    words = ("synthetic.references=true",)
    made = [row.stage for row in run_small(RunRequest("small", overrides=words)).rows if row.state == "completed"]
    assert made[:3] == ["extract_best", "shard", "train"]
    learned = trace_pair("small", pair_id, words).steps
    assert learned[2].values == {**distilled, "folder": learned[2].values["folder"]}
    assert learned[3] == steps[3], "the pieces of the translation, not of the reference"

    pytest.importorskip("ctranslate2")
    export("small/1", to="ctranslate2", quantization="int8", out=tmp_path / "student")
    from model.export.ctranslate2_runtime import Folder

    folder = Folder(tmp_path / "student", threads=1)
    assert len(folder.translate(["The old woman sees a dog.", "A man runs."], folder.search)) == 2
