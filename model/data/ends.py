"""Adds special tokens around a source (``Model.source_ends``) and eos after a target (``Training.target_ends``).

A source has the same special tokens in training, decoding and exports. With every setting an empty source is read as
one eos, because attention needs a position. Targets have their eos tokens in training; a search stops at the first.
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
"""The number of tokens that the labels of a target, and its decoder inputs, have in addition to its pieces."""


def with_ends(source: Sequence[int], ends: SourceEnds) -> list[int]:
    """Return the tokens of a source as the model reads them."""
    before, after = TOKENS_AROUND[ends]
    return [*before, *source, *after] if len(source) else [EOS]


def number_of_ends(ends: SourceEnds) -> int:
    """Return the number of tokens that ``with_ends`` adds to a source that is not empty."""
    return sum(map(len, TOKENS_AROUND[ends]))


def lengths_with_ends(lengths: Array, ends: SourceEnds) -> Array:
    """Return the lengths of sources as the model reads them, from the lengths without special tokens."""
    return np.where(lengths > 0, lengths + number_of_ends(ends), 1)


def rows_with_ends(rows: tuple[Array, Array], ends: SourceEnds) -> tuple[Array, Array]:
    """Apply ``with_ends`` to each row. Returns the tokens of all rows end to end, and the length of each row."""
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
    """Append all eos except the last to each target; they are both inputs and labels.

    Returns the tokens of all rows end to end, and the length of each row."""
    tokens, lengths = rows
    more = NUMBER_OF_EOS[ends] - 1
    return np.insert(tokens, np.repeat(np.cumsum(lengths), more), EOS), lengths + more
