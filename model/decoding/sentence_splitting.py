"""Splits a line into sentences with the library ``sentencex``.

The library is imported only when text is split. Evaluation sets have one segment per line and are never split.
"""

from collections.abc import Callable, Sequence

SentenceSplitter = Callable[[str], Sequence[str]]
"""Returns the sentences of a line in order; together they contain all of its non-space characters."""
DEFAULT_LANGUAGE = "en"


def splitter(language: str) -> SentenceSplitter:
    """Return a splitter for a language, an ISO 639-1 code such as ``de`` or ``de-AT``.

    Unknown languages use the rules of English. Raises ModuleNotFoundError if the library is not installed.
    """
    import sentencex

    code = language.lower().replace("_", "-").partition("-")[0] or DEFAULT_LANGUAGE

    def sentences(line: str) -> list[str]:
        # sentencex 1.0 panics at some multi-byte white space (U+0085, U+2028), so all white space becomes a space.
        plain = "".join(" " if character.isspace() else character for character in line)
        found = []
        start = 0
        for segment in sentencex.segment(code, plain):
            found.append(line[start : start + len(segment)].strip())
            start += len(segment)
        return [sentence for sentence in found if sentence]

    return sentences
