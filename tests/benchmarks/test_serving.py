"""Test of the serving benchmark at a small size: both servers answer and the report is complete."""

import json

from benchmarks.serving import WAYS, measure, table

SMALL = ["--size", "tiny", "--clients", "1,3", "--seconds", "0.3", "--rounds", "1", "--words", "2", "--beam", "1"]


def test_both_ways_answer_and_a_ratio_is_taken_within_a_round() -> None:
    report = measure(SMALL)
    assert report["rates"].keys() == WAYS.keys()
    for clients in (1, 3):
        [batched], [unbatched] = (report["rates_done"][way][clients] for way in WAYS)
        assert batched > 0
        assert report["ratios"][clients]["median"] == batched / unbatched
    assert json.loads(json.dumps(report))["command"] == "python benchmarks/serving.py " + " ".join(SMALL)
    for way in WAYS:
        assert way in table(report)
