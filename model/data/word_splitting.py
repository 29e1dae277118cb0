"""Splits text into words with the rules of spaCy or Moses for a language, before a vocabulary reads it.

The libraries are imported only when text is split. A vocabulary folder records the splitting in ``spacy.json`` or
``moses.json``, so that a version splits a source in the same way as its training text, and joins the words it writes.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

LIBRARIES = {"spacy": "spacy", "moses": "sacremoses"}
RECORDS = tuple(f"{by}.json" for by in LIBRARIES)
NEEDED = "vocabulary.tokens is spacy, which needs the extra: pip install -e '.[spacy]'"


@dataclass(frozen=True)
class WordSplitting:
    """Splits lines into words with one space between two words, and joins words to text again."""

    by: Literal["spacy", "moses"]
    """spacy: spaCy's rules (``spacy.blank``), without a trained model. moses: sacremoses normalises punctuation, then
    splits with Moses' tokenizer."""
    languages: tuple[str, ...]
    """ISO 639-1 codes of source and target."""
    lowercase: bool = False
    """moses: lower-case before splitting, because Moses' rules depend on case."""

    @classmethod
    def load(cls, folder: Path) -> "WordSplitting | None":
        """Read the word splitting of the vocabulary in ``folder``; None if only its tokenizer splits text."""
        for by in LIBRARIES:
            record = folder / f"{by}.json"
            if record.exists():
                found = json.loads(record.read_text())
                return cls(by, tuple(found["languages"]), found.get("lowercase", False))  # type: ignore[arg-type]
        return None

    @property
    def record(self) -> tuple[str, str]:
        """Name and text of the file that ``load`` reads; it has the library's release, because rules change."""
        form: dict[str, Any] = {"languages": self.languages, self.by: version(self.library)}
        return f"{self.by}.json", json.dumps(form | ({"lowercase": True} if self.lowercase else {})) + "\n"

    @property
    def library(self) -> str:
        """The library that splits text."""
        return LIBRARIES[self.by]

    @property
    def about(self) -> str:
        """The changes of the text in words, for the fact ``source_input`` of scores."""
        words = "split by spaCy" if self.by == "spacy" else "punctuation normalised and words split as by Moses"
        return ", ".join((*["lower-cased"] * self.lowercase, words))

    def split(self, lines: Sequence[str], side: int) -> list[str]:
        """Split lines of a side (0: source, 1: target) into words, with one space between two words."""
        language = self.languages[side]
        if self.by == "moses":
            tokens = moses_tokens(language, self.lowercase)
            return [tokens(line) for line in lines]
        tokenize = spacy_tokenizer(language)
        return [" ".join(token.text for token in tokenize(line) if not token.is_space) for line in lines]

    def join(self, words: str) -> str:
        """Join target words to text: Moses' with its detokenizer; spaCy's keep one space between two words."""
        if self.by == "spacy":
            return words
        return str(moses_detokenizer(self.languages[1]).detokenize(words.split(), unescape=False))


@cache
def spacy_tokenizer(language: str) -> Any:
    """Return spaCy's tokenizer of a language. Raises JobError if spaCy is missing or does not support the language."""
    from ..errors import JobError  # an exported folder contains this file without the rest of the package

    try:
        import spacy
    except ImportError as error:
        raise JobError("bad_configuration", NEEDED) from error
    try:
        return spacy.blank(language).tokenizer
    except ImportError as error:  # also if the rules of a language need another library
        message = f"vocabulary.tokens is spacy, which cannot split text of the language {language!r}: {error}"
        raise JobError("bad_configuration", message) from error


@cache
def moses_tokens(language: str, lowercase: bool) -> Callable[[str], str]:
    """Return a function that splits a line into Moses' tokens, after Moses' punctuation normalisation."""
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalize = MosesPunctNormalizer(language).normalize
    tokenize = MosesTokenizer(language).tokenize

    def tokens(line: str) -> str:
        line = normalize(line.strip())
        return str(tokenize(line.lower() if lowercase else line, return_str=True, escape=False))

    return tokens


@cache
def moses_detokenizer(language: str) -> Any:
    from sacremoses import MosesDetokenizer

    return MosesDetokenizer(language)
