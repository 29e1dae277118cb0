"""The files that each stage's run has in MLflow, read by MLflow's own client: those of a stage that ran, once."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_pipeline import small_run

from infra.store.local import LocalStore
from infra.tracking.client import mlflow_client
from tasks.engine.stage import StageCall
from tasks.reporting.stage_files import stage_files
from tasks.stages.clean import clean

SHOWN = {
    "clean": {"filters.json", "rejected.json"},
    "learn_bpe": {"tokenizer.json"},
    "shard train": {"lengths.png", "lengths.json"},
    "train": {"metrics.jsonl", "curves.png", "job.json", "job.log"},
    "average": {"checkpoints.json"},
    "translate test": {"translations.json"},
    "score test": {"card.json", "scores.json"},
    "report": {"report.html", "tokens.csv", "curves.png"},
    "register": {"model_card.md"},
}


def test_each_stage_shows_what_a_person_opens(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{small}/mlflow.db")  # load_table has no other address
    client = mlflow_client(f"sqlite:///{small}/mlflow.db")
    (experiment,) = (each.experiment_id for each in client.search_experiments(filter_string="name = 'small'"))
    found = client.search_runs([experiment], "tags.stage != ''")
    runs = {f"{run.data.tags['stage']} {run.data.tags.get('item', '')}".strip(): run for run in found}
    for stage, expected in SHOWN.items():
        assert {file.path for file in client.list_artifacts(runs[stage].info.run_id)} >= expected, stage

    def table(stage: str, name: str) -> Any:
        shown = {each["path"] for each in json.loads(runs[stage].data.tags["mlflow.loggedArtifacts"])}
        assert name in shown, "MLflow's page does not know that it is a table"
        return client.load_table(experiment, name, run_ids=[runs[stage].info.run_id])

    facts = {stage: run.data.metrics for stage, run in runs.items()}
    filters = table("clean", "filters.json")
    assert filters["rejected"].sum() == facts["clean"]["rejected"]
    assert len(table("clean", "rejected.json")) <= facts["clean"]["rejected"]
    lengths = table("shard train", "lengths.json")
    for side in ("source", "target"):
        assert lengths[f"{side} sentences"].sum() == facts["shard train"]["pairs"]
        pieces_read = (lengths["pieces in a sentence"] * lengths[f"{side} sentences"]).sum()
        assert pieces_read == facts["shard train"][f"{side}_pieces"]
    averaged = table("average", "checkpoints.json")
    assert list(averaged["update"]) == [40, 80, 120]
    assert list(averaged["in the average"]) == ["no", "yes", "yes"]
    translations = table("translate test", "translations.json")
    assert list(translations.columns) == ["pair_id", "source", "hypothesis", "reference"]
    assert len(translations) == facts["score test"]["sentences"] == 12
    scores = table("score test", "scores.json").set_index("measure")["score"]
    assert scores["bleu"] == facts["score test"]["bleu"]


@pytest.mark.parametrize("copies", [True, False])
def test_no_sentence_is_shown_of_a_text_whose_licence_forbids_copies(
    finished_root: Path, tmp_path: Path, copies: bool
) -> None:
    run = small_run(tmp_path)
    store = LocalStore(finished_root)
    (key,) = (folder.name for folder in (finished_root / "clean").iterdir())
    manifest = store.find("clean", key)
    assert manifest
    arguments = {"corpus": replace(run.corpus, copies=copies), "archives": {}, "exclude": (), "filters": run.filters}
    found = {file.name: file.content for file in stage_files(StageCall(clean, "", arguments), store.artifact(manifest))}
    assert set(found) == {"filters.json", "rejected.json" if copies else "left-out.txt"}
