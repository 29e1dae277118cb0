"""The pairs that a run read have traces, and a trace agrees with each artifact that it reads."""

import json
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from small_pipeline import run_small

from flows.commands.trace import trace as command
from flows.inspection.trace import find_made, trace, trace_pair
from flows.runner.request import RunRequest, make_plan
from flows.runs import RUNS
from infra.errors import BadConfiguration
from infra.site import Site
from model.data.batches import BatchSampler
from model.data.shards import Shards

REQUEST = RunRequest("small", until="score")


def test_pairs_of_the_corpus_have_traces_that_agree_with_the_artifacts(small: Path) -> None:
    """Every rejected pair and every third of the others, which differ in nothing that a trace distinguishes."""
    found = find_made(make_plan(REQUEST.resolve()))
    folder = found.made["clean", ""].path()
    rejected = dict(pl.read_parquet(folder / "rejected.parquet").select("pair_id", "filter").iter_rows())
    text = pl.concat(
        pl.read_parquet(folder / name).select("pair_id", "source", "target")
        for name in ("pairs.parquet", "rejected.parquet")
    )
    assert set(text["pair_id"]) == {f"small:{line}" for line in range(600)}
    assert len(set(rejected.values())) > 5
    shards = Shards(found.made["shard", "train"].path())
    rows = {shards.pair_id(row): row for row in range(len(shards))}
    training = RUNS["small"].training
    batches = BatchSampler(shards, training.batch_tokens, training.seed, training.batching).epoch(0)
    for pair_id, source, target in text.iter_rows():
        by = rejected.get(pair_id, "")
        if not by and int(pair_id.partition(":")[2]) % 3:
            continue
        steps = trace(RUNS["small"], Site.named(), found, pair_id).steps
        cleaned = steps[1].values
        assert (cleaned["source"], cleaned["target"], cleaned["rejected_by"]) == (source, target, by)
        said = {verdict["rule"]: verdict["said"] for verdict in cleaned["verdicts"]}
        assert [rule for rule, word in said.items() if word == "rejected"] == ([by] if by else [])
        if by:
            assert [step.kind for step in steps] == ["published", "cleaned"]
            continue
        assert [step.kind for step in steps] == ["published", "cleaned", "encoded", "sharded", "trained"]
        encoded, sharded, trained = (step.values for step in steps[2:])
        assert sharded["row"] == rows[pair_id]
        assert shards.pieces("target", sharded["row"]).tolist() == encoded["target_ids"]
        assert sharded["row"] in batches[trained["update"] - 1]


def test_the_best_beam_of_every_pair_of_the_sets_is_its_hypothesis(small: Path) -> None:
    found = find_made(make_plan(REQUEST.resolve()))
    for name in ("dev", "test"):
        table = pl.read_parquet(found.made["translate", name].path() / "hypotheses.parquet")
        scores = pl.read_parquet(found.made["score", name].path() / "sentences.parquet")
        assert len(table) == 12
        for row, score in zip(table.iter_rows(named=True), scores.iter_rows(named=True), strict=True):
            steps = {step.kind: step for step in trace(RUNS["small"], Site.named(), found, row["pair_id"]).steps}
            assert list(steps) == ["published", "encoded", "sharded", "translated", "decoded", "scored"]
            decoded = steps["decoded"].values
            beams = decoded["beams"]
            beam = RUNS["small"].decoding.beam
            assert beam <= len(beams) <= 2 * beam - 1
            ended = [row for rows in decoded["steps"] for row in rows if row["ended"]]
            assert sorted(row["score"] for row in ended) == sorted(b["score"] for b in beams if b["finished"])
            for rows, longer in pairwise(decoded["steps"]):
                texts = {row["rank"]: row["text"] for row in rows}
                assert [row["rank"] for row in longer if not row["ended"]] == [*range(1, len(longer) + 1)][:beam]
                assert all(row["text"].startswith(texts[row["continues"]].rstrip("\ufffd")) for row in longer)
            assert steps["translated"].values["hypothesis"] == beams[0]["text"] == row["hypothesis"]
            assert beams[0]["score"] == pytest.approx(row["score"], abs=1e-4)
            assert [beam["score"] for beam in beams] == sorted((b["score"] for b in beams), reverse=True)
            assert decoded["source_pieces"] == [*steps["encoded"].values["source_pieces"], "</s>"]
            weights = steps["decoded"].weights
            assert weights is not None
            assert weights.shape[2:] == (len(decoded["written_pieces"]), len(decoded["source_pieces"]))
            assert weights.sum(axis=-1) == pytest.approx(1, abs=1e-5)
            assert steps["scored"].values["bleu"] == score["bleu"]


def test_a_training_that_begins_with_a_version_is_traced_with_its_vocabulary(small: Path) -> None:
    request = RunRequest("small", overrides=("training.start=small/1", "vocabulary.size=500"), until="shard")
    run_small(request)
    traced = trace_pair("small", "small:0", request.overrides)
    plain = trace_pair("small", "small:0")
    assert traced.steps[2].kind == "encoded"
    assert traced.steps[2] == plain.steps[2]


def test_the_command_prints_text_json_and_a_picture(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command("small", "test:3", attention=True, out=tmp_path / "attention.png")
    shown = capsys.readouterr()
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")
    assert "attention.png" in shown.err
    command("small", "test:3", as_json=True)
    printed = json.loads(capsys.readouterr().out)
    steps = {step["step"]: step for step in printed["steps"]}
    assert list(steps) == ["published", "encoded", "sharded", "translated", "decoded", "scored"]
    assert steps["translated"]["hypothesis"] == steps["decoded"]["beams"][0]["text"]
    assert len(steps["decoded"]["attended"]) == len(steps["decoded"]["written_pieces"])
    rows = [row for rows in steps["decoded"]["steps"] for row in rows]
    assert all((row["piece"] == "</s>") == row["ended"] == (row["rank"] == 0) for row in rows)


def test_what_cannot_be_traced_or_drawn_is_said(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "attention.png"
    with pytest.raises(BadConfiguration, match="--json is for a run and a pair"):
        command("The dog runs.", attention=True, out=out, as_json=True)
    with pytest.raises(BadConfiguration, match="small:0 was not decoded"):
        command("small", "small:0", attention=True, out=out)
    assert not out.exists()
    with pytest.raises(BadConfiguration, match="'small/1' is a version, allowed is a run"):
        command("small/1", "dev:1")
