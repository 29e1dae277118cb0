"""Dropout on a CPU preserves the mean as closely as the type of the elements allows."""

import pytest
import torch

from model.network.dropout import STEPS, Dropout


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float32, 2**-23), (torch.bfloat16, 2**-9)])
@pytest.mark.parametrize("p", [0.1, 0.2, 0.3, 0.5])
def test_kept_elements_are_scaled_by_the_rounded_rate(p: float, dtype: torch.dtype, rounding: float) -> None:
    torch.manual_seed(1)
    dropout = Dropout(p)
    kept = dropout(torch.ones(10_000, dtype=dtype))
    (scale,) = kept[kept != 0].unique().tolist()
    assert scale == pytest.approx(1 / (1 - dropout.dropped / STEPS), rel=rounding)
    assert float((kept == 0).float().mean()) == pytest.approx(p, abs=0.03)
