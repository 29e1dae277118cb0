"""Tests of the training benchmark at a toy size: contestants do the same work and the report is complete."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.contestants import Own, Step, TorchPeer
from benchmarks.machine import PROJECT_ROOT
from benchmarks.synthetic import LENGTHS, write_shards
from benchmarks.throughput import measure, table
from model.data.shards import Array, Shards

TOY = ["--size", "toy", "--rounds", "2", "--updates", "3", "--warmup", "1", "--pairs", "200", "--tokens", "200"]


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return measure([*TOY, "--peers", "torch"])


def test_contestants_train_on_the_same_pairs(report: dict[str, Any]) -> None:
    own, torch_peer = report["contestants"]["own"], report["contestants"]["torch"]
    for name in ("pairs", "pairs_digest", "target_pieces", "padding", "flops_per_target_piece"):
        assert own[name] == torch_peer[name], name
    assert own["pairs"] >= 6
    for a, b in zip(own["rounds"], torch_peer["rounds"], strict=True):
        assert (a["pairs"], a["target_pieces"], a["cells"]) == (b["pairs"], b["target_pieces"], b["cells"])


def test_the_report_names_its_command_and_environment(report: dict[str, Any]) -> None:
    assert json.loads(json.dumps(report)) == report
    assert "own/torch: " in table(report)
    assert report["command"].startswith("python benchmarks/throughput.py --size toy")
    assert report["torch"] == torch.__version__
    assert {"commit", "python", "device", "threads", "allocator", "seed", "peak"} <= report.keys()
    ratio = report["ratios"]["own/torch"]["cpu"]
    assert 0 < ratio["least"] <= ratio["median"] <= ratio["most"]


@pytest.mark.parametrize("crash_at", [0, 1, 5])  # at warm-up, in the first round, in the second
def test_a_crashing_peer_leaves_the_report_to_the_others(crash_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, step = iter(range(100)), TorchPeer.step

    def crashing(self: TorchPeer, rows: Array) -> Step:
        if next(steps) == crash_at:
            raise RuntimeError("CUDA out of memory")
        return step(self, rows)

    monkeypatch.setattr(TorchPeer, "step", crashing)
    report = measure([*TOY, "--peers", "torch"])
    assert report["failed"] == {"torch": "RuntimeError: CUDA out of memory"}
    assert report["contestants"].keys() == {"own"}
    assert len(report["contestants"]["own"]["rounds"]) == 2
    assert not report["ratios"]
    assert "torch failed: RuntimeError: CUDA out of memory" in table(report)


def test_a_failure_of_this_engine_ends_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    def crashing(self: Own, rows: Array) -> Step:
        raise RuntimeError("own")

    monkeypatch.setattr(Own, "step", crashing)
    with pytest.raises(RuntimeError, match="own"):
        measure([*TOY, "--peers", "torch"])


@pytest.mark.parametrize("arguments", [["--size", "huge"], ["--peers", "nobody"]])
def test_unknown_options_are_refused(arguments: list[str]) -> None:
    with pytest.raises(ValueError, match="allowed is"):
        measure(arguments)


def test_the_program_sets_the_allocator(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    program = str(PROJECT_ROOT / "benchmarks" / "throughput.py")
    words = ["--peers", "", "--json", str(file), "--commit", "1234abcd"]
    subprocess.run([sys.executable, program, *TOY, *words], check=True, cwd=tmp_path)
    report = json.loads(file.read_text())
    assert all(report["allocator"].values())
    assert report["contestants"].keys() == {"own"}
    assert report["commit"] == "1234abcd"


@pytest.mark.parametrize(("name", "means"), [("multi30k", (14.9, 13.9)), ("wmt", (28.9, 26.8))])
def test_synthetic_lengths_resemble_the_corpora(name: str, means: tuple[float, float], tmp_path: Path) -> None:
    write_shards(tmp_path / "shards", LENGTHS[name], 20_000, 1_000, seed=3)
    shards = Shards(tmp_path / "shards")
    source, target = shards.lengths["source"], shards.lengths["target"]
    assert (source.mean(), target.mean()) == pytest.approx(means, rel=0.03)
    assert np.corrcoef(source, target)[0, 1] == pytest.approx(0.9, abs=0.05)
    shards.check_pieces("source", 1_000)
    assert min(int(shards.pieces("target", row).min()) for row in range(1_000)) >= 4
