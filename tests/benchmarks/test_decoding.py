"""Tests of the decoding benchmark at a toy size: all decoders do the same work."""

from benchmarks.decoders import PEERS
from benchmarks.decoding import measure

TOY = ["--size", "toy", "--rounds", "2", "--batch", "3", "--sentences", "5", "--peers", ",".join(PEERS)]


def test_all_decoders_translate_the_same_sentences() -> None:
    report = measure(TOY)
    assert report["decoders"].keys() == {"own", *PEERS}
    for rows in report["rounds_done"].values():
        assert [(row["sentences"], row["pieces"]) for row in rows] == [(5, 150)] * 2
