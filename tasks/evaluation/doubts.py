"""Finds signs that translations do not belong to a set: broken, empty or copied lines, words of others."""

import re
from collections.abc import Iterator, Sequence

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
"""Thai, Lao, Burmese, Khmer, Japanese, Chinese: scripts without spaces, where two characters count as a word."""
WORD = re.compile(rf"(?=([{UNSPACED}]{{2}}))|([^\W{UNSPACED}]+)")
PLACES = 10
"""Parts of the set: lines are also compared with references 1, 2, … parts away, which stand for another set."""
CLEARLY = 1.1
"""Least ratio of the words that lines share with their own references and with any others."""


def doubts(hypotheses: Sequence[str], references: Sequence[str], sources: Sequence[str] = ()) -> Iterator[str]:
    """A sentence for each doubt; ``sources`` may be unknown. All are lists of lines of equal length."""
    count = len(references)
    pairs = [*enumerate(zip(hypotheses, references, strict=True), 1)]
    if broken := [number for number, texts in pairs if "\ufffd" in "".join(texts)]:
        yield f"{len(broken):,} of {count:,} lines are not UTF-8, the first is line {broken[0]}"
    if empty := [number for number, (line, reference) in pairs if reference.strip() and not line.strip()]:
        yield f"{len(empty):,} of {count:,} lines are empty, the first is line {empty[0]}"
    if 2 * (same := sum(map(str.__eq__, hypotheses, references))) > max(count, 100):  # a few short lines may be equal
        yield f"{same:,} of {count:,} lines equal their references: were references copied into them?"
    written, expected, read = ([{*WORD.findall(line.lower())} for line in s] for s in (hypotheses, references, sources))
    own = _common(written, expected)
    shifts = {1, -1, 2, -2, *(count * part // PLACES for part in range(1, PLACES))}
    others = (_common(written, [*expected[n:], *expected[:n]]) for n in shifts if 0 < abs(n) < count)
    if read and _common(written, read) > own:
        yield "they have more words in common with the sources: are the sides or languages swapped?"
    elif max(others, default=-1) * CLEARLY >= own:
        yield (
            "they have about as many words in common with other references as with their own: are they of another "
            "set, or in another order?"
        )


def _common(lines: Sequence[set[str]], others: Sequence[set[str]]) -> int:
    return sum(len(line & other) for line, other in zip(lines, others, strict=True))
