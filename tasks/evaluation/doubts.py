"""What speaks against translations being those of a set: empty lines, the wrong side, other sentences.

Words are compared with those of the set's own sides, so this works for any languages and needs no model.
"""

import re
from collections.abc import Iterator, Sequence

WORD = re.compile(r"\w+")
NAMED = 10
"""Numbers of lines that a sentence names at most."""


def doubts(hypotheses: Sequence[str], references: Sequence[str], sources: Sequence[str] = ()) -> Iterator[str]:
    """A sentence for each doubt; ``sources`` may be unknown. All are lists of lines of equal length."""
    pairs = list(zip(hypotheses, references, strict=True))
    if empty := [n for n, (line, reference) in enumerate(pairs, 1) if reference.strip() and not line.strip()]:
        numbers = ", ".join(map(str, empty[:NAMED])) + ", …" * (len(empty) > NAMED)
        yield f"{len(empty):,} of {len(pairs):,} lines {'is' if len(empty) == 1 else 'are'} empty: {numbers}"
    sides = (hypotheses, references, sources)
    written, expected, read = ([{*WORD.findall(line.lower())} for line in side] for side in sides)
    foreign = set[str]().union(*read) - set[str]().union(*expected)
    own = set[str]().union(*expected) - set[str]().union(*read)
    if pairs and all(line == reference for line, reference in pairs):
        yield "every line equals its reference: is this the file of the references?"
    elif sources and sum(len(line & foreign) - len(line & own) for line in written) > 0:
        equal = sum(line.strip() == source.strip() for line, source in zip(hypotheses, sources, strict=True))
        yield f"they are in the language of the sources, which {equal:,} lines equal: are the sides swapped?"
    elif shift := _better_place(written, expected):
        yield (
            "they have fewer words in common with their own references than with those "
            f"{abs(shift)} lines {'below' if shift > 0 else 'above'}: are they of another set, or in another order?"
        )


def _better_place(lines: Sequence[set[str]], references: Sequence[set[str]]) -> int:
    """By how many lines the references are away that share more words than those at the same place; 0 for none."""
    count = len(lines)
    shifts = [shift for shift in (0, 1, -1, 2, -2, count // 3, count // 2) if abs(shift) < count]
    common = {
        shift: sum(len(line & references[(number + shift) % count]) for number, line in enumerate(lines))
        for shift in shifts
    }
    return max(shifts, key=common.__getitem__, default=0)
