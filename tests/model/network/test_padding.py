"""Tests of packed sentences as padded rows: values and exact gradients."""

import pytest
import torch

from model.network.attention import SequenceOffsets

LENGTHS = [3, 1, 0, 4, 0]
OFFSETS = SequenceOffsets(torch.tensor([0, 3, 4, 4, 8, 8], dtype=torch.int32), 5)


@pytest.mark.parametrize("width", [(), (2,), (2, 3)])
def test_sentences_become_rows_and_padding_is_zero(width: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    values = torch.randn(8, *width, dtype=torch.float64, requires_grad=True)
    padded = OFFSETS.to_padded(values)
    assert OFFSETS.valid_positions().sum(1).tolist() == LENGTHS
    for row, part in zip(padded, values.split(LENGTHS), strict=True):
        assert torch.equal(row[: len(part)], part)
        assert not row[len(part) :].any()
    assert torch.autograd.gradcheck(OFFSETS.to_padded, (values,))
