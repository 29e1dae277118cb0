"""Splits text into words by the rules of a language before a vocabulary reads it: spaCy's tokens, or those of Moses.

The libraries are imported only when text is split. A vocabulary folder records the splitting in ``spacy.json`` or
``moses.json``, so that a version splits what it reads as its training text was, and writes text that is joined again.
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
    """How lines are split into words, with one space between any two, and how words become text again."""

    by: Literal["spacy", "moses"]
    """spacy: by spaCy's rules (``spacy.blank``), which need no trained model; moses: punctuation normalised, then
    Moses' tokens, both by sacremoses."""
    languages: tuple[str, ...]
    """ISO 639-1 codes of source and target."""
    lowercase: bool = False
    """moses: lower-case before splitting, since its rules look at case."""

    @classmethod
    def load(cls, folder: Path) -> "WordSplitting | None":
        """How text is split for the vocabulary in ``folder``; None where its tokenizer alone splits it."""
        for by in LIBRARIES:
            record = folder / f"{by}.json"
            if record.exists():
                found = json.loads(record.read_text())
                return cls(by, tuple(found["languages"]), found.get("lowercase", False))  # type: ignore[arg-type]
        return None

    @property
    def record(self) -> tuple[str, str]:
        """Name and text of the file that ``load`` reads; with the library's release, since rules change."""
        form: dict[str, Any] = {"languages": self.languages, self.by: version(self.library)}
        return f"{self.by}.json", json.dumps(form | ({"lowercase": True} if self.lowercase else {})) + "\n"

    @property
    def library(self) -> str:
        """The library that splits."""
        return LIBRARIES[self.by]

    @property
    def about(self) -> str:
        """What is done to text, as the fact ``source_input`` of scores says it."""
        words = "split by spaCy" if self.by == "spacy" else "punctuation normalised and words split as by Moses"
        return ", ".join((*["lower-cased"] * self.lowercase, words))

    def split(self, lines: Sequence[str], side: int) -> list[str]:
        """Lines of a side, 0 for sources and 1 for targets, as words."""
        language = self.languages[side]
        if self.by == "moses":
            tokens = moses_tokens(language, self.lowercase)
            return [tokens(line) for line in lines]
        tokenize = spacy_tokenizer(language)
        return [" ".join(token.text for token in tokenize(line) if not token.is_space) for line in lines]

    def join(self, words: str) -> str:
        """The text of target words: as Moses joins them; spaCy's keep a space between any two."""
        if self.by == "spacy":
            return words
        return str(moses_detokenizer(self.languages[1]).detokenize(words.split(), unescape=False))


@cache
def spacy_tokenizer(language: str) -> Any:
    """spaCy's tokenizer of a language. Raises JobError without spaCy, or where spaCy does not know the language."""
    from ..errors import JobError  # exported folders hold this file alone

    try:
        import spacy
    except ImportError as error:
        raise JobError("bad_configuration", NEEDED) from error
    try:
        return spacy.blank(language).tokenizer
    except ImportError as error:  # also where the rules of a language need a further library
        message = f"vocabulary.tokens is spacy, which cannot split text of the language {language!r}: {error}"
        raise JobError("bad_configuration", message) from error


@cache
def moses_tokens(language: str, lowercase: bool) -> Callable[[str], str]:
    """Moses' tokens of a line, after its normalisation of punctuation; XML's characters are not escaped."""
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
