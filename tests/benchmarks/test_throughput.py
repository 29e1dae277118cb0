"""Tests of the training benchmark at a toy size: contestants do the same work and the report is complete."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.contestants import TorchPeer, missing
from benchmarks.machine import PROJECT_ROOT
from benchmarks.synthetic import LENGTHS, write_shards
from benchmarks.throughput import measure, table
from model.data.shards import Shards

TOY = ["--size", "toy", "--rounds", "2", "--updates", "3", "--warmup", "1", "--pairs", "200", "--tokens", "200"]


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return measure([*TOY, "--peers", "torch,marian"])


def test_contestants_train_on_the_same_pairs(report: dict[str, Any]) -> None:
    own, torch_peer = report["contestants"]["own"], report["contestants"]["torch"]
    for name in ("pairs", "pairs_digest", "target_pieces", "padding", "flops_per_target_piece"):
        assert own[name] == torch_peer[name], name
    assert own["pairs"] >= 6
    for a, b in zip(own["rounds"], torch_peer["rounds"], strict=True):
        assert (a["pairs"], a["target_pieces"], a["cells"]) == (b["pairs"], b["target_pieces"], b["cells"])


def test_the_report_tells_where_it_comes_from(report: dict[str, Any]) -> None:
    again = json.loads(json.dumps(report))
    assert again == report
    assert report["command"].startswith("python benchmarks/throughput.py --size toy")
    assert report["torch"] == torch.__version__
    assert {"commit", "python", "device", "threads", "allocator", "seed", "peak"} <= report.keys()
    ratio = report["ratios"]["own/torch"]["cpu"]
    assert 0 < ratio["least"] <= ratio["median"] <= ratio["most"]


def test_rates_are_pieces_over_seconds(report: dict[str, Any]) -> None:
    for row in report["contestants"].values():
        rates = sorted(one["target_pieces"] / one["cpu"] for one in row["rounds"])
        assert row["per_cpu_second"]["least"] == pytest.approx(rates[0])
        assert row["per_cpu_second"]["most"] == pytest.approx(rates[-1])
        assert 0 < row["padding"] < 0.5
        assert 0 < row["utilisation"]["median"] < 1


def test_a_peer_that_is_not_installed_is_named_and_left_out(report: dict[str, Any]) -> None:
    if missing("marian"):
        assert "transformers" in report["left_out"]["marian"]
        assert report["contestants"].keys() == {"own", "torch"}
    else:
        assert report["contestants"].keys() == {"own", "torch", "marian"}


def test_the_table_has_a_line_for_each_contestant(report: dict[str, Any]) -> None:
    lines = table(report).splitlines()
    assert {"own", "torch"} <= {line.split()[0] for line in lines}
    assert any(re.match(r"own/torch: [\d.]+ \(", line) for line in lines)


@pytest.mark.parametrize(("dropouts", "expected"), [("paper", 0.0), ("everywhere", 0.1)])
def test_dropouts_are_where_they_are_asked_for(dropouts: str, expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[TorchPeer] = []
    monkeypatch.setattr(TorchPeer, "__init__", _noting(TorchPeer.__init__, built))
    measure([*TOY, "--peers", "torch", "--dropouts", dropouts])
    layer: Any = built[0].layers()[-1]
    assert layer.self_attn.dropout == layer.multihead_attn.dropout == layer.dropout.p == expected
    assert layer.dropout1.p == layer.dropout2.p == layer.dropout3.p == 0.1
    assert built[0].setting.model.p_drop_attention == built[0].setting.model.p_drop_relu == expected


@pytest.mark.parametrize("arguments", [["--size", "huge"], ["--peers", "nobody"]])
def test_what_is_not_known_is_named(arguments: list[str]) -> None:
    with pytest.raises(ValueError, match="allowed is"):
        measure(arguments)


def test_as_a_program_it_brings_the_allocators_settings_along(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    command = [
        sys.executable,
        str(PROJECT_ROOT / "benchmarks" / "throughput.py"),
        *TOY,
        "--peers",
        "",
        "--json",
        str(file),
    ]
    subprocess.run(command, check=True, cwd=tmp_path)
    report = json.loads(file.read_text())
    assert all(report["allocator"].values())
    assert report["contestants"].keys() == {"own"}


@pytest.mark.parametrize(("name", "means"), [("multi30k", (14.9, 13.9)), ("wmt", (28.9, 26.8))])
def test_lengths_are_like_real_ones(name: str, means: tuple[float, float], tmp_path: Path) -> None:
    write_shards(tmp_path / "shards", LENGTHS[name], 20_000, 1_000, seed=3)
    shards = Shards(tmp_path / "shards")
    source, target = shards.lengths["source"], shards.lengths["target"]
    assert (source.mean(), target.mean()) == pytest.approx(means, rel=0.03)
    assert np.corrcoef(source, target)[0, 1] == pytest.approx(0.9, abs=0.05)
    shards.check_pieces("source", 1_000)
    assert min(int(shards.pieces("target", row).min()) for row in range(1_000)) >= 4


def _noting(init: Any, built: list[TorchPeer]) -> Any:
    def noting(self: TorchPeer, *arguments: Any) -> None:
        init(self, *arguments)
        built.append(self)

    return noting
