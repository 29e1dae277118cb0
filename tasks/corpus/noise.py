"""Adds noise to text by rule and seed, for test sets (``test+caps``) and training pairs (``augment.caps``).

A rule draws from Python's Mersenne Twister, seeded with the seed, the pair's id and the rule's name, so a pair has the
same noise on every machine. The target changes if a translator would keep the noise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random

from model.config.keying import require, unkeyed_default
from model.config.normalise import DOUBLE_QUOTES, SINGLE_QUOTES
from tasks.lazy_libraries import pa

Sides = tuple[str, str]
PAIR = ("pair_id", "source", "target")
"""The columns of a pair that noise needs."""
TYPO_SHARE = 0.15
"""The share of words of three letters or more that have a typo."""
WORD = re.compile(r"[^\W\d_]{3,}")
FINAL_MARKS = re.compile(r"[\s.!?…。！？।؟]+$")
KEYBOARD = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
EMOJI = "😀😂😍👍🎉🔥"


def _mistyped(random: Random, word: re.Match[str]) -> str:
    """Misspell ``TYPO_SHARE`` of the words: a letter is swapped, omitted, doubled or replaced by a neighbouring key."""
    text = word[0]
    if random.random() >= TYPO_SHARE:
        return text
    at = _below(len(text) - 1, random)
    letter = text[at]
    after = text[at + 1 :]
    row = next((keys for keys in KEYBOARD if letter.lower() in keys), letter)
    near = row[(row.find(letter.lower()) + 1) % len(row)]
    wrong = (after[0] + letter + after[1:], after, letter + letter + after, near + after)
    return text[:at] + wrong[_below(len(wrong), random)]


def _bare(source: str, target: str, _: Random) -> Sides:
    bare = FINAL_MARKS.sub("", source), FINAL_MARKS.sub("", target)
    return bare if all(bare) and bare[0] != source else (source, target)


def _odd_quote(random: Random, plain: re.Match[str]) -> str:
    odd = DOUBLE_QUOTES if plain[0] == '"' else SINGLE_QUOTES
    return odd[_below(len(odd), random)]


def _appended(source: str, target: str, text: str) -> Sides:
    return f"{source} {text}", f"{target} {text}"


def _below(count: int, random: Random) -> int:
    return int(random.random() * count)  # Python keeps the results of no other method of Random


RULES: Mapping[str, Callable[[str, str, Random], Sides]] = {
    "caps": lambda source, target, _: (source.upper(), target.upper()),  # without rules of a language: ß becomes SS
    "lower": lambda source, target, _: (source.lower(), target),
    "typos": lambda source, target, random: (WORD.sub(partial(_mistyped, random), source), target),
    "nopunct": _bare,
    "emoji": lambda source, target, random: _appended(source, target, EMOJI[_below(len(EMOJI), random)]),
    "url": lambda source, target, random: _appended(source, target, f"https://example.org/{_below(10**6, random):06}"),
    "nbsp": lambda source, target, random: (re.sub(" ", lambda _: "\u00a0 "[_below(2, random)], source), target),
    "quotes": lambda source, target, random: (re.sub("[\"']", partial(_odd_quote, random), source), target),
}


@dataclass(frozen=True)
class Augment:
    """Adds noised copies of training pairs: a share of 0.1 adds copies of a tenth of all pairs.

    A pair that the rule does not change gets no copy. No clean pair is lost, so an epoch grows by the sum of the
    shares. ``learn_bpe`` learns from the copies as well.
    """

    caps: float = unkeyed_default(0.0)
    """Share of pairs with a copy in ALL CAPS on both sides."""
    typos: float = unkeyed_default(0.0)
    """Share with typos in the source, in about one word of seven."""
    seed: int = 1
    """Seed of the choice of pairs and of their noise."""

    def __post_init__(self) -> None:
        for name, share in self.shares.items():
            require(0 <= share <= 1, f"augment.{name}", share, "a share of the pairs, from 0 to 1")

    @property
    def shares(self) -> Mapping[str, float]:
        """The shares that are not 0, by rule."""
        return {rule: share for rule, share in (("caps", self.caps), ("typos", self.typos)) if share}

    def copies(self, pair_id: str, source: str, target: str) -> list[tuple[str, str, str]]:
        """The noised copies of a pair, each with its id, such as ``europarl:17+caps``."""
        found = []
        for rule, share in self.shares.items():
            random = _random(self.seed, pair_id, rule)
            if random.random() < share and (sides := RULES[rule](source, target, random)) != (source, target):
                found.append((f"{pair_id}+{rule}", *sides))
        return found

    def beside(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield each batch of ``PAIR`` columns, then the noised copies of its pairs, if any."""
        for batch in batches:
            yield batch
            lines = zip(*(batch.column(name).to_pylist() for name in PAIR), strict=True) if self.shares else ()
            if copies := [copy for line in lines for copy in self.copies(*line)]:
                yield pa.record_batch([pa.array(column) for column in zip(*copies, strict=True)], PAIR)


NO_NOISE = Augment()


def noised(rules: tuple[str, ...], seed: int, pair_id: str, source: str, target: str) -> Sides:
    """The pair changed by each rule in turn."""
    for rule in rules:
        source, target = RULES[rule](source, target, _random(seed, pair_id, rule))
    return source, target


def _random(seed: int, pair_id: str, rule: str) -> Random:
    return Random(f"{seed}:{pair_id}:{rule}")
