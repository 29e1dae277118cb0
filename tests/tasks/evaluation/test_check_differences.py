"""The difference of two trainings at equal dev checks, against plain formulas."""

import json
import math
import statistics
from pathlib import Path

import pytest

from tasks.evaluation.check_differences import check_differences


def log(file: Path, checks: dict[int, dict[str, float]]) -> Path:
    file.write_text("".join(json.dumps({"done": update, **values}) + "\n" for update, values in checks.items()))
    return file


def test_trainings_are_compared_where_both_have_a_check(tmp_path: Path) -> None:
    bleu = {10: (5.0, 5.5), 20: (9.0, 9.25), 30: (12.0, 11.0), 40: (14.0, 16.0), 50: (15.0, 15.5), 60: (16.0, 19.0)}
    a = {update: {"dev_bleu": x, "dev_perplexity": 200 / update} for update, (x, _) in bleu.items()}
    b = {update: {"dev_bleu": y, "dev_perplexity": 180 / update} for update, (_, y) in bleu.items()}
    files = log(tmp_path / "a", {**a, 15: {"loss": 1.0}, 70: {"dev_bleu": 1.0}}), log(tmp_path / "b", {5: a[10], **b})
    points, percent = check_differences(*files)
    assert (points.measure, percent.measure) == ("dev_bleu", "dev_perplexity")
    assert points.updates == percent.updates == list(bleu)
    assert points.differences == [0.5, 0.25, -1, 2, 0.5, 3]
    assert percent.differences == pytest.approx([-10] * 6)
    near = [[0.5, 0.25, -1], [0.5, 0.25, -1, 2], [0.5, 0.25, -1, 2, 0.5], [0.25, -1, 2, 0.5, 3], [-1, 2, 0.5, 3]]
    for place, values in enumerate([*near, [2, 0.5, 3]]):
        assert points.means[place] == pytest.approx(sum(values) / len(values))
        assert points.errors[place] == pytest.approx(statistics.stdev(values) / math.sqrt(len(values)))


def test_few_checks_have_no_band_and_trainings_without_a_common_check_no_difference(tmp_path: Path) -> None:
    a = log(tmp_path / "a", {10: {"dev_perplexity": 8.0}, 20: {"dev_perplexity": 4.0}, 30: {"dev_bleu": 3.0}})
    b = log(tmp_path / "b", {10: {"dev_perplexity": 6.0}, 20: {"dev_perplexity": 5.0}})
    [found] = check_differences(a, b)
    assert (found.differences, found.means, found.errors) == ([-25, 25], [0, 0], [None, None])
    assert check_differences(a, log(tmp_path / "c", {15: {"dev_perplexity": 6.0}})) == []
