"""What speaks against translations being those of a set: empty lines, the wrong side, other sentences.

Words are compared with those of the set's own sides, so this works for any languages and needs no model.
"""

import re
from collections.abc import Iterator, Sequence

WORD = re.compile(r"\w+")
PLACES = 10
CLEARLY = 1.1
"""How many times more words a line shares with its own reference than with any other, at least."""
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
        yield f"their words are those of the sources, which {equal:,} lines equal: are the sides or languages swapped?"
    elif shift := _better_place(written, expected):
        away = f"{abs(shift)} line{'s' * (abs(shift) > 1)} {'below' if shift > 0 else 'above'}"
        yield (
            f"they have about as many words in common with the references {away} as with their own: are they of "
            "another set, or in another order?"
        )


def _better_place(lines: Sequence[set[str]], references: Sequence[set[str]]) -> int:
    """By how many lines the references are away that share nearly as many words as those at the same place, or more.

    0 if no reference does: then the lines are translations of the set, however bad.
    """
    count = len(lines)
    shifts = {1, -1, 2, -2, *(count * part // PLACES for part in range(1, PLACES))}
    common = {
        shift: sum(len(line & references[(number + shift) % count]) for number, line in enumerate(lines))
        for shift in (0, *(shift for shift in shifts if 0 < abs(shift) < count))
    }
    own = common.pop(0)
    best = max(common, key=common.__getitem__, default=0)
    return best if best and common[best] * CLEARLY >= own else 0
