"""The special tokens around a source (``Model.source_ends``), and the eos after a target (``Training.target_ends``).

Those of a source are the same in training, decoding and exports. An empty one is read as eos alone, whatever the
setting: attention needs a position. Targets have theirs in training; a search stops at the first eos.
"""

from collections.abc import Sequence

import numpy as np

from ..config import SourceEnds, TargetEnds
from ..config.special_pieces import BOS, EOS
from .shards import Array

TOKENS_AROUND: dict[SourceEnds, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "eos": ((), (EOS,)),
    "none": ((), ()),
    "bos+eos": ((BOS,), (EOS,)),
}
"""The tokens before and after a source."""
NUMBER_OF_EOS: dict[TargetEnds, int] = {"eos": 1, "eos+eos": 2}
"""By how many tokens the labels of a target, and its decoder inputs, are more than its pieces."""


def with_ends(source: Sequence[int], ends: SourceEnds) -> list[int]:
    """The tokens of a source as the model reads them."""
    before, after = TOKENS_AROUND[ends]
    return [*before, *source, *after] if len(source) else [EOS]


def number_of_ends(ends: SourceEnds) -> int:
    """How many tokens ``with_ends`` adds to a source that is not empty."""
    return sum(map(len, TOKENS_AROUND[ends]))


def lengths_with_ends(lengths: Array, ends: SourceEnds) -> Array:
    """The lengths of sources as the model reads them, from those without special tokens."""
    return np.where(lengths > 0, lengths + number_of_ends(ends), 1)


def rows_with_ends(rows: tuple[Array, Array], ends: SourceEnds) -> tuple[Array, Array]:
    """``with_ends`` of each row: the tokens of all rows end to end, and the length of each row."""
    tokens, lengths = rows
    longer = lengths_with_ends(lengths, ends)
    begins = np.cumsum(longer) - longer
    all_tokens = np.full(int(longer.sum()), EOS, np.int64)
    before = len(TOKENS_AROUND[ends][0])
    if before:
        all_tokens[begins[lengths > 0]] = BOS
    shifts = begins + before - (np.cumsum(lengths) - lengths)
    all_tokens[np.repeat(shifts, lengths) + np.arange(len(tokens))] = tokens
    return all_tokens, longer


def rows_before_last_eos(rows: tuple[Array, Array], ends: TargetEnds) -> tuple[Array, Array]:
    """Targets with all eos but the last, which are both inputs and labels: the tokens of all rows end to end, and the
    length of each row."""
    tokens, lengths = rows
    more = NUMBER_OF_EOS[ends] - 1
    return np.insert(tokens, np.repeat(np.cumsum(lengths), more), EOS), lengths + more
