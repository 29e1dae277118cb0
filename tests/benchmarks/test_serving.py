"""Tests of the benchmarks of serving at a small size: all servers and engines answer and the report is complete."""

import json

import pytest

pytest.importorskip("ctranslate2")
from benchmarks import translation
from benchmarks.serving import WAYS, Load, measure, table

SMALL = ["--size", "tiny", "--clients", "1,3", "--seconds", "0.3", "--rounds", "1", "--words", "2", "--beam", "1"]
SMALL += ["--ways", ",".join(WAYS)]
"""A few requests to every server."""


def test_every_server_answers_and_its_cpu_time_is_counted() -> None:
    report = measure(SMALL)
    assert report["rate"].keys() == WAYS.keys()
    for way in WAYS:
        for clients in (1, 3):
            assert report["rates_done"][way][clients][0] > 0
            found = {name: report[name][way][clients]["median"] for name in Load._fields}
            assert 0 < found["p50"] <= found["p99"]
        assert way in table(report)
    assert json.loads(json.dumps(report))["command"] == "python benchmarks/serving.py " + " ".join(SMALL)


@pytest.mark.parametrize("lines", [1, 40])
def test_blocks_of_lines_are_translated_as_the_peer_does(lines: int) -> None:
    words = ["--size", "tiny", "--lines", f"{lines}", "--rounds", "2", "--words", "3", "--beam", "2"]
    report = translation.measure([*words, "--engines", "repro,own,peer"])
    for name in report["engines"]:
        assert report["rates"][name]["cpu"]["median"] > 0
        assert 0 < report["milliseconds"][name]["wall"]["p50"] <= report["milliseconds"][name]["wall"]["p99"]
        assert name in translation.table(report)
    assert report["equal"] > 0
