"""Tests of the presets: each row of Table 3 differs from base as its name and group say."""

import re
from dataclasses import asdict
from typing import Any

import pytest

from model.config import check_compatible, supports_varlen_attention
from model.config.paper_models import BASE, BASE_TRAINING, TABLE_3

ROWS = [row for row in TABLE_3 if row not in ("base", "big")]
MAY_DIFFER = {
    "A": {"heads", "d_k", "d_v"},
    "B": {"d_k"},
    "C": {"layers", "d_model", "d_ff", "d_k", "d_v"},
    "D": {"p_drop", "label_smoothing"},
    "E": {"positions"},
}


def differences(row: str) -> dict[str, Any]:
    model, training = TABLE_3[row]
    base = asdict(BASE) | asdict(BASE_TRAINING)
    values = asdict(model) | asdict(training) | {"batching": BASE_TRAINING.batching}
    return {name: value for name, value in values.items() if value != base[name]}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_differs_from_base_by_what_its_name_says(row: str) -> None:
    different = differences(row)
    assert different
    assert different.keys() <= MAY_DIFFER[row[0]]
    number = re.search(r"\d+$", row)
    if number:
        value = int(number[0]) / (10 if row.startswith("D") else 1)
        assert value in different.values()


@pytest.mark.parametrize("row", TABLE_3)
def test_a_row_is_packed_where_the_gpu_can(row: str) -> None:
    model, training = TABLE_3[row]
    check_compatible(model, training)
    assert (training.batching == "packed") is supports_varlen_attention(model)
