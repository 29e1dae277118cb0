"""Tests of what Inductor would run on an H200: kernels, bytes and products of a layer and of the loss, as recorded.

More of any is a regression that a GPU would show as time. After a change that is meant, record the new figures: the
program that this test starts prints them.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.machine import PROJECT_ROOT

TORCH = "2.11"
RECORDED = {
    "encoder layer, forward": (11, 659_815_712, 4, 519_594_260, 157_437_394_944, {"repro.packed_attention": 1}),
    "encoder layer, backward": (
        15,
        1_165_523_968,
        8,
        1_038_371_076,
        314_874_789_888,
        {"repro.packed_attention_backward": 1},
    ),
    "decoder layer, forward": (15, 829_632_584, 6, 726_445_600, 183_676_960_768, {"repro.packed_attention": 2}),
    "decoder layer, backward": (
        20,
        1_414_619_904,
        12,
        1_553_764_872,
        367_353_921_536,
        {"repro.packed_attention_backward": 2},
    ),
    "loss, forward": (1, 3_703_902_336, 0, 0, 0, {}),
}
"""Of base, by graph: Triton kernels and their bytes, products, their bytes and operations, other operators."""


@pytest.mark.slow
def test_the_code_of_a_layer_and_of_the_loss_has_no_more_kernels_and_bytes_than_recorded(tmp_path: Path) -> None:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("NOT RUN: Triton is not installed; it comes with the CUDA wheels of torch")
    file = tmp_path / "counts.json"
    program = PROJECT_ROOT / "benchmarks" / "h200_code.py"
    subprocess.run([sys.executable, str(program), "--size", "base", "--json", str(file)], check=True)
    report = json.loads(file.read_text())
    if not report["torch"].startswith(f"{TORCH}."):
        pytest.skip(f"NOT RUN: the figures are of torch {TORCH}, this is {report['torch']}")
    names = ("kernels", "triton_bytes", "products", "product_bytes", "flops", "operators")
    assert {graph["name"]: tuple(graph[name] for name in names) for graph in report["graphs"]} == RECORDED
