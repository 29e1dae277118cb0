"""The interface between the web application and a model version, which answers in JSON."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

AttentionKind = Literal["cross", "encoder", "decoder"]
"""``cross``: the translation attends to the source; ``encoder`` and ``decoder``: a side attends to itself."""


@dataclass(frozen=True)
class SamplingSettings:
    """Settings of sampling: each token is drawn from the model's distribution instead of searched for."""

    temperature: float = 1.0
    """Below 1 favours likely tokens."""
    top_k: int = 0
    """Only this many most likely tokens are drawn; 0: all."""
    seed: int = 1


@dataclass(frozen=True)
class SearchSettings:
    """Settings of beam search, or of sampling. Only sentences with equal settings share a batch."""

    beam: int
    alpha: float
    sampling: SamplingSettings | None = None


@dataclass(frozen=True)
class Source:
    """A sentence to translate: ``prefix`` is how its translation begins, ``number`` chooses its random numbers."""

    text: str
    prefix: str = ""
    number: int = 0


SentenceJson = dict[str, Any]
"""A translated sentence as JSON: ``source``, its ``pieces``, the ``engine`` that searched, and ``hypotheses``, best
first.

A hypothesis has ``text``, ``ids`` (its tokens without eos) and ``pieces`` (their readable form), ``score``,
``log_probability`` (natural) and ``finished``: false if it was cut at the greatest length.
"""


@dataclass(frozen=True)
class ServedModel:
    """A model version: what it says of itself, and the functions that answer requests.

    ``translate`` and ``attention`` are called on one thread, one at a time, the other functions on any thread.
    """

    name: str
    """Its unique name, such as ``demo/1``."""
    aliases: tuple[str, ...]
    """With ``champion``, ``demo@champion`` is another name of ``demo/1``."""
    remark: str
    """What is to be known of its aliases, shown behind them."""
    languages: tuple[str, str]
    """Language codes of source and target; empty where they are unknown."""
    search: SearchSettings
    """The search settings that apply unless a request has its own."""
    engine: str
    """The engine of its searches, unless a request needs another one."""
    longest: int
    """Tokens of the longest sentence that it accepts."""
    sentences: Callable[[str], Sequence[str]]
    """Splits a line into sentences, none of them empty."""
    lengths: Callable[[Sequence[str]], Sequence[int]]
    """Counts the tokens of each sentence."""
    prefix_length: Callable[[str], int]
    """Counts the tokens of a prefix."""
    unknown_in_prefix: Callable[[str], str]
    """Returns the first word or character of a prefix that is not in the vocabulary, "" if there is none."""
    most_hypotheses: Callable[[int], int]
    """Returns the most hypotheses that a search with this beam can finish."""
    translate: Callable[[Sequence[Source], SearchSettings, int], Sequence[SentenceJson]]
    """Translates sentences of at most ``longest`` tokens with prefixes of at most so many; the results are in the same
    order. The number is that of hypotheses."""
    attention: Callable[[str, str | Sequence[int], AttentionKind], Mapping[str, Any]]
    """Computes the attention of a sentence and its translation, which is given as text or as token ids.

    Returns ``rows`` and ``columns``, the tokens that attend and the attended ones, and ``weights`` by layer, head, row
    and column. Raises ValueError for an id that is not in the vocabulary."""
