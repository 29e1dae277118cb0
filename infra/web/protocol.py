"""The interface between the web application and a model version, which answers in JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

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


class ServedModel(Protocol):
    """A model version. ``translate`` and ``attention`` are called on one thread, one at a time; ``sentences`` and
    ``lengths`` on any thread."""

    @property
    def name(self) -> str:
        """Its unique name, such as ``demo/1``."""
        ...

    @property
    def aliases(self) -> tuple[str, ...]:
        """Its aliases: with ``champion``, ``demo@champion`` is another name of ``demo/1``."""
        ...

    @property
    def remark(self) -> str:
        """What is to be known of its aliases, shown behind them; empty for nothing."""
        ...

    @property
    def languages(self) -> tuple[str, str]:
        """Language codes of source and target; empty where they are unknown."""
        ...

    @property
    def search(self) -> SearchSettings:
        """The search settings that apply unless a request has its own."""
        ...

    @property
    def engine(self) -> str:
        """The engine of its searches, unless a request needs another one."""
        ...

    @property
    def longest(self) -> int:
        """Tokens of the longest sentence that it accepts."""
        ...

    def sentences(self, line: str) -> Sequence[str]:
        """Split a line into sentences, none of them empty."""
        ...

    def lengths(self, sentences: Sequence[str]) -> Sequence[int]:
        """Count the tokens of each sentence."""
        ...

    def prefix_length(self, prefix: str) -> int:
        """Count the tokens of a prefix."""
        ...

    def unknown_in_prefix(self, prefix: str) -> str:
        """Return the first word or character of a prefix that is not in the vocabulary, "" if there is none."""
        ...

    def most_hypotheses(self, beam: int) -> int:
        """Return the most hypotheses that a search with this beam can finish."""
        ...

    def translate(self, sources: Sequence[Source], search: SearchSettings, n_best: int) -> Sequence[SentenceJson]:
        """Translate sentences of at most ``longest`` tokens with prefixes of at most so many; the results are in the
        same order."""
        ...

    def attention(self, source: str, target: str | Sequence[int], kind: AttentionKind) -> Mapping[str, Any]:
        """Compute the attention of a sentence and a translation, which is given as text or as token ids.

        Returns ``rows`` and ``columns``, the tokens that attend and the attended ones, and ``weights`` by layer, head,
        row and column. Raises ValueError for an id that is not in the vocabulary.
        """
        ...
