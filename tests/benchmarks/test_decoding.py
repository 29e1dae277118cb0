"""Tests of the decoding benchmark at a toy size: outputs have the requested lengths and the report is complete."""

from typing import Any

import pytest

from benchmarks.decoders import PEERS, Own, Setting, Work, draw_sources
from benchmarks.decoding import measure
from model.config import Model

TOY = ["--size", "toy", "--rounds", "2", "--batch", "3", "--sentences", "5", "--peers", ",".join(PEERS)]
SETTING = Setting(
    Model(layers=1, d_model=16, d_ff=32, heads=2, d_k=8, d_v=8), 64, beam=2, device="cpu", threads=1, seed=1
)


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return measure(TOY)


def test_all_decoders_translate_the_same_sentences(report: dict[str, Any]) -> None:
    assert report["decoders"].keys() == {"own", *PEERS}
    for rows in report["rounds_done"].values():
        assert [(row["sentences"], row["pieces"]) for row in rows] == [(5, 150)] * 2


def test_each_output_has_its_requested_length() -> None:
    sources = draw_sources([3, 9, 4], 64, seed=1)
    assert Own(SETTING).decode(Work(sources, [7, 2, 12])) == [7, 2, 12]
