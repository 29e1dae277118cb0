"""Tests of a visit to a GPU: a rehearsal on the CPU with the libraries of a bare node."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

from small_training import pairs, write_shards, write_text, write_vocabulary

from benchmarks.machine import PROJECT_ROOT
from benchmarks.visit_pack import CODE, RUN
from flows.runs import RUNS

ABSENT = ("polars", "prefect", "mlflow", "pytest", "hypothesis", "flows", "tasks", "infra")


def write_visit(folder: Path) -> None:
    """A folder as ``visit.py pack`` writes it, with little data."""
    for name in CODE:
        copy = shutil.copytree if (PROJECT_ROOT / name).is_dir() else shutil.copy2
        copy(PROJECT_ROOT / name, folder / name)
    data = folder / "data" / RUN
    write_shards(data / "shards", pairs(40))
    write_shards(data / "dev", pairs(10, seed=1), files=1)
    write_text(data / "text", [" ".join(f"p{piece}" for piece in source) for source, _ in pairs(10, seed=1)])
    write_vocabulary(data / "vocabulary")
    (data / "reference.txt").write_text("p5 p6\n" * 10)
    run = RUNS[RUN]
    settings = {name: asdict(getattr(run, name)) for name in ("model", "averaging", "decoding")}
    settings["training"] = asdict(replace(run.training, batching="packed", precision="bf16"))
    settings["normalise"] = asdict(run.filters.normalise)
    (data / "job.json").write_text(json.dumps(settings))
    (folder / "visit.json").write_text(json.dumps({"commit": "1234abcd"}))


def test_every_phase_writes_rows_on_a_node_without_the_orchestration(tmp_path: Path) -> None:
    folder = tmp_path / "visit"
    folder.mkdir()
    write_visit(folder)
    guard = tmp_path / "guard"
    guard.mkdir()
    (guard / "sitecustomize.py").write_text(f"import sys\nsys.modules |= dict.fromkeys({ABSENT})\n")
    environment = {**os.environ, "PYTHONPATH": str(guard)}
    words = ["run", "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work"), "--device", "cpu", "--tiny"]
    command = [sys.executable, str(folder / "benchmarks" / "visit.py"), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    log = (tmp_path / "out" / "log.txt").read_text()
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == [
        "check: done", "speed: done", "profile: done", "train: done",
    ], log  # fmt: skip
    rows = [json.loads(line) for line in (tmp_path / "out" / "rows.jsonl").read_text().splitlines()]
    found = {row["what"]: row for row in rows}
    assert {row["commit"] for row in rows} == {"1234abcd"}
    assert found["training again has the same weights to the bit"]["figure"] == 1
    assert found["training resumed has the same weights to the bit"]["figure"] == 1
    assert found["training again, first update with another loss"]["figure"] == 0
    assert found["gradients, packed, against a CPU"]["figure"] > 0.9999
    assert {row["peer"] for row in rows} == {"", "torch"}
    assert found[f"{RUN}, updates"]["figure"] == 12
    assert 0 <= found[f"{RUN}, dev BLEU, decoding.precision=fp32"]["figure"] <= 100
