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
ATTENTION, GRADIENT = "model.packed_attention", "model.packed_attention_backward"
RECORDED = {
    (): {
        "encoder layer, forward": (10, 454_819_104, 4, 519_594_260, 157_437_394_944, {ATTENTION: 1}),
        "encoder layer, backward": (15, 1_165_523_968, 8, 1_038_371_076, 314_874_789_888, {GRADIENT: 1}),
        "decoder layer, forward": (14, 624_635_976, 6, 726_445_600, 183_676_960_768, {ATTENTION: 2}),
        "decoder layer, backward": (20, 1_414_619_904, 12, 1_553_764_872, 367_353_921_536, {GRADIENT: 2}),
        "loss, forward": (1, 3_703_902_336, 0, 0, 0, {}),
    },
    ("--residual", "bf16"): {
        "encoder layer, forward": (9, 224_298_016, 4, 519_594_260, 157_437_394_944, {ATTENTION: 1}),
        "encoder layer, backward": (14, 883_753_728, 8, 1_063_995_652, 314_874_789_888, {GRADIENT: 1}),
        "decoder layer, forward": (13, 342_961_736, 6, 726_445_600, 183_676_960_768, {ATTENTION: 2}),
        "decoder layer, backward": (19, 1_056_076_032, 12, 1_579_389_448, 367_353_921_536, {GRADIENT: 2}),
        "loss, forward": (1, 3_703_902_336, 0, 0, 0, {}),
    },
    ("--residual", "bf16", "--whole"): {
        "whole update": (
            340,
            25_597_547_364,
            186,
            32_868_102_544,
            9_456_698_523_648,
            {ATTENTION: 18, GRADIENT: 18},
        ),
    },
}
"""Of base, by arguments and graph: Triton kernels and their bytes, products, their bytes and operations, other
operators."""


@pytest.mark.slow
@pytest.mark.parametrize("words", RECORDED)
def test_the_code_of_a_layer_and_of_the_loss_has_no_more_kernels_and_bytes_than_recorded(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("NOT RUN: Triton is not installed; it comes with the CUDA wheels of torch")
    file = tmp_path / "counts.json"
    program = PROJECT_ROOT / "benchmarks" / "h200_code.py"
    subprocess.run([sys.executable, str(program), "--size", "base", *words, "--json", str(file)], check=True)
    report = json.loads(file.read_text())
    if not report["torch"].startswith(f"{TORCH}."):
        pytest.skip(f"NOT RUN: the figures are of torch {TORCH}, this is {report['torch']}")
    names = ("kernels", "triton_bytes", "products", "product_bytes", "flops", "operators")
    assert {graph["name"]: tuple(graph[name] for name in names) for graph in report["graphs"]} == RECORDED[words]
