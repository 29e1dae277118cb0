"""Tests of the share of a device's peak that a training uses."""

from model.training.flops import Work, peak_flops


def test_utilisation_is_a_share_of_a_known_peak() -> None:
    peak = peak_flops("NVIDIA H100 80GB HBM3")
    assert Work(peak / 2, peak).mfu(ranks=2) == {"mfu": 0.25}
    assert Work(2e14, peak_flops("cpu")).mfu(ranks=1) == {}
