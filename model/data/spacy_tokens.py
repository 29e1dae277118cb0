"""Splits text into spaCy's tokens by the rules of a language (``spacy.blank``), which need no trained model.

The library is imported only when text is split: it is an extra.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from ..errors import JobError

NEEDED = "vocabulary.tokens is spacy, which needs the extra: pip install -e '.[spacy]'"


def spaced(lines: Sequence[str], language: str) -> list[str]:
    """Each line as spaCy's tokens in ``language``, an ISO 639-1 code, with one space between any two."""
    split = tokenizer(language)
    return [" ".join(token.text for token in split(line) if not token.is_space) for line in lines]


@cache
def tokenizer(language: str) -> Any:
    """spaCy's tokenizer of a language. Raises JobError without spaCy, or where spaCy does not know the language."""
    try:
        import spacy
    except ImportError as error:
        raise JobError("bad_configuration", NEEDED) from error
    try:
        return spacy.blank(language).tokenizer
    except ImportError as error:  # also where the rules of a language need a further library
        message = f"vocabulary.tokens is spacy, which cannot split text of the language {language!r}: {error}"
        raise JobError("bad_configuration", message) from error


def release() -> str:
    """The installed spaCy, as a vocabulary records it: rules differ between releases."""
    import spacy

    return str(spacy.__version__)
