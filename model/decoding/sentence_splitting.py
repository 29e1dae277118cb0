"""A line becomes its sentences: the one place in this package that knows the library ``sentencex``.

In comes text of a language, out come its sentences. The library is wanted only where text is split: an evaluation set
has a segment on each line, and training never asks.
"""

from collections.abc import Callable, Sequence

SentenceSplitter = Callable[[str], Sequence[str]]
"""The sentences of a line, in order: together they hold every character of it that is no white space."""
DEFAULT_LANGUAGE = "en"


def unsplit(line: str) -> list[str]:
    """The line itself, as if it were one sentence."""
    return [line]


def splitter(language: str) -> SentenceSplitter:
    """Splits text of a language, an ISO 639-1 code (``de``, ``de-AT``); one that the library does not know is split
    by English's rules. Raises ModuleNotFoundError where the library is not installed."""
    import sentencex

    code = language.lower().replace("_", "-").partition("-")[0] or DEFAULT_LANGUAGE

    def sentences(line: str) -> list[str]:
        # sentencex 1.0 panics at some white space of more than a byte (U+0085, U+2028), so it sees plain spaces.
        plain = "".join(" " if character.isspace() else character for character in line)
        found, start = [], 0
        for segment in sentencex.segment(code, plain):
            found.append(line[start : start + len(segment)].strip())
            start += len(segment)
        return [sentence for sentence in found if sentence]

    return sentences
