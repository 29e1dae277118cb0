"""The eos tokens after a target in training (``Training.target_ends``). A search stops at the first."""

import numpy as np

from ..config import TargetEnds
from ..config.special_pieces import EOS
from .shards import Array

NUMBER_OF_EOS: dict[TargetEnds, int] = {"eos": 1, "eos+eos": 2}
"""By how many tokens the labels of a target, and its decoder inputs, are more than its pieces."""


def rows_before_last_eos(rows: tuple[Array, Array], ends: TargetEnds) -> tuple[Array, Array]:
    """Targets with all eos but the last, which are both inputs and labels: the tokens of all rows end to end, and the
    length of each row."""
    tokens, lengths = rows
    more = NUMBER_OF_EOS[ends] - 1
    return np.insert(tokens, np.repeat(np.cumsum(lengths), more), EOS), lengths + more
