"""Writes synthetic parallel text with the word frequencies and line lengths of WMT14, one pair per line of two files.

5 % of the pairs repeat an earlier one and 3 % are bad in one of the ways of ``BAD``. Words are meaningless syllables,
frequent ones short.
"""

# Frequent words follow Zipf's law, rare ones a steeper law, so that new words keep appearing as in real text: 52,072
# pairs of WMT14's kinds (Europarl, news, Common Crawl) hold 86,210 distinct English and 128,233 distinct German words,
# and a quarter of them 37,659 and 51,273; the synthetic text agrees within 5 %.

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks.synthetic import LENGTHS

COMMON = 10_000
RARE = {"source": 0.09, "target": 0.16}
"""Share of the words that follow the steeper law."""
STEEPNESS = {"source": 1.65, "target": 1.5}
"""Exponent of the law of rare words."""
PIECES_PER_WORD = 1.25
REPEATED = 0.05
SPOILT = 0.03
BAD = ("empty", "identical", "ratio", "broken", "overlong", "foreign")
BATCH_PAIRS = 50_000
ONSETS = {"source": "bcdfghklmnprstvw", "target": "bdfghjklmnprstwz"}
VOWELS = {"source": "aeiou", "target": "aeiouäöü"}


def draw_lines(side: str, random: np.random.Generator, lengths: NDArray[np.int64]) -> pa.Array:
    """Draw sentences with as many words as ``lengths`` says."""
    tokens = int(lengths.sum())
    power = STEEPNESS[side] - 1
    common = np.exp(random.random(tokens) * np.log(COMMON)) - 1
    rare = COMMON * (1 - random.random(tokens)) ** (-1 / power)  # Pareto's law from the last common rank on
    ranks = np.where(random.random(tokens) < RARE[side], rare, common).clip(max=2**62).astype(np.int64)
    distinct, places = np.unique(ranks, return_inverse=True)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    words = pa.array(spelt(side, distinct).tolist()).take(pa.array(places))
    sentences = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), words), " ")
    return pc.binary_join_element_wise(pc.utf8_capitalize(sentences), ".", "")


def spelt(side: str, ranks: NDArray[np.int64]) -> NDArray[np.str_]:
    """Spell the words of these ranks: each rank has its own word, frequent ones short."""
    syllables = np.array([c + v for c in ONSETS[side] for v in VOWELS[side]])
    base = len(syllables)
    words = syllables[ranks % base]
    rest = ranks // base
    while (more := rest > 0).any():
        words = np.char.add(words, np.where(more, syllables[(rest - 1) % base], ""))
        rest = np.where(more, (rest - 1) // base, 0)
    return words


def write_text(folder: Path, pairs: int, seed: int) -> tuple[Path, Path]:
    """Write ``text.source`` and ``text.target`` into an existing folder."""
    random = np.random.default_rng(seed)
    paths = folder / "text.source", folder / "text.target"
    with paths[0].open("wb") as source, paths[1].open("wb") as target:
        for begin in range(0, pairs, BATCH_PAIRS):
            count = min(BATCH_PAIRS, pairs - begin)
            pieces = LENGTHS["wmt"].draw(random, count)
            lengths = [np.maximum(np.rint(side / PIECES_PER_WORD), 1).astype(np.int64) for side in pieces]
            sides = [draw_lines(side, random, length).to_pylist() for side, length in zip(RARE, lengths, strict=True)]
            _corrupt(random, sides[0], sides[1])
            for file, lines in ((source, sides[0]), (target, sides[1])):
                file.write("".join(f"{line}\n" for line in lines).encode())
    return paths


def _corrupt(random: np.random.Generator, source: list[str], target: list[str]) -> None:
    count = len(source)
    for n in np.flatnonzero(random.random(count) < REPEATED).tolist():
        earlier = int(random.integers(0, n + 1))
        source[n] = source[earlier]
        target[n] = target[earlier]
    for n in np.flatnonzero(random.random(count) < SPOILT).tolist():
        match BAD[int(random.integers(0, len(BAD)))]:
            case "empty":
                target[n] = ""
            case "identical":
                target[n] = source[n]
            case "ratio":
                target[n] = " ".join([target[n]] * 4)
            case "broken":
                target[n] = f"\N{REPLACEMENT CHARACTER}{target[n]}"
            case "overlong":
                source[n] = source[n].replace(" ", "", 40) + "x" * 80
            case _:
                target[n] = "Это предложение по-русски и переводом не является."
