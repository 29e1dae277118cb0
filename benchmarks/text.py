"""Parallel text made of nothing: words by Zipf's law, lines as long as WMT14's, with blemishes as real corpora have.

In come a number of pairs and a seed; out go two plain files, a line a pair. Of the pairs 5 % repeat an earlier one and
3 % are bad in one of the ways of ``BAD``. Words are syllables, the commoner the shorter; they mean nothing, so what
is learnt from them says nothing of translation.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks.synthetic import LENGTHS

WORDS = {"source": 700_000, "target": 1_600_000}
"""Distinct words of each language; WMT14 En-De has about as many."""
PIECES_PER_WORD = 1.25
REPEATED, SPOILT = 0.05, 0.03
BAD = ("empty", "identical", "ratio", "broken", "overlong", "foreign")
TOGETHER = 50_000
ONSETS = {"source": "bcdfghklmnprstvw", "target": "bdfghjklmnprstwz"}
VOWELS = {"source": "aeiou", "target": "aeiouäöü"}


@dataclass(frozen=True)
class Language:
    """A side's words, the commonest first."""

    words: pa.Array

    @classmethod
    def of(cls, side: str) -> "Language":
        syllables = np.array([c + v for c in ONSETS[side] for v in VOWELS[side]])
        count, base = WORDS[side], len(syllables)
        ranks = np.arange(count)
        spelt = syllables[ranks % base]
        rest = ranks // base
        while (more := rest > 0).any():
            spelt = np.char.add(spelt, np.where(more, syllables[(rest - 1) % base], ""))
            rest = np.where(more, (rest - 1) // base, 0)
        return cls(pa.array(spelt))

    def lines(self, random: np.random.Generator, lengths: NDArray[np.int64]) -> pa.Array:
        """Sentences of so many words each."""
        count = len(self.words)
        ranks = np.minimum(np.exp(random.random(int(lengths.sum())) * np.log(count)).astype(np.int64), count) - 1
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        words = pa.ListArray.from_arrays(pa.array(offsets), self.words.take(pa.array(ranks)))
        return pc.binary_join_element_wise(pc.utf8_capitalize(pc.binary_join(words, " ")), ".", "")


def write_text(folder: Path, pairs: int, seed: int) -> tuple[Path, Path]:
    """``text.source`` and ``text.target`` in a folder that exists."""
    random = np.random.default_rng(seed)
    languages = {side: Language.of(side) for side in WORDS}
    paths = folder / "text.source", folder / "text.target"
    with paths[0].open("wb") as source, paths[1].open("wb") as target:
        for begin in range(0, pairs, TOGETHER):
            count = min(TOGETHER, pairs - begin)
            pieces = LENGTHS["wmt"].draw(random, count)
            lengths = [np.maximum(np.rint(side / PIECES_PER_WORD), 1).astype(np.int64) for side in pieces]
            sides = [
                language.lines(random, length).to_pylist()
                for language, length in zip(languages.values(), lengths, strict=True)
            ]
            _blemish(random, sides[0], sides[1])
            for file, lines in ((source, sides[0]), (target, sides[1])):
                file.write("".join(f"{line}\n" for line in lines).encode())
    return paths


def _blemish(random: np.random.Generator, source: list[str], target: list[str]) -> None:
    count = len(source)
    for n in np.flatnonzero(random.random(count) < REPEATED).tolist():
        earlier = int(random.integers(0, n + 1))
        source[n], target[n] = source[earlier], target[earlier]
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
