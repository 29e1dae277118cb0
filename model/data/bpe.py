"""Reads tokenizers (§5.1) from a vocabulary folder, without torch.

The folder holds ``tokenizer.json``. If each side has its own vocabulary, it also holds ``tokenizer.target.json``; if
text is first split into words, also a record of the splitting (``model.data.word_splitting``).
Encoding returns token ids without ``<s>`` and ``</s>``; batching adds these two.

A version is registered with a source tokenizer that normalises a source in the same way as the training text
(``normalising``). Targets are encoded without normalising.

If a run names the scripts of its languages, the tokenizers of both sides read every character of another script as
``<unk>``, in training and in use: the normaliser replaces it by ``SUBSTITUTE``, and no piece contains this byte.

Byte-level tokenizers add a space before every line and remove it in decoding: so a word has the same pieces at every
position, and decoding returns all other Unicode text unchanged. Tokenizers of characters end a word in ``</w>``.
Markup in the text, such as a literal ``</s>``, is encoded as text.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config.normalise import PLAIN_QUOTES, REMOVED, UNEVEN, Normalise
from ..config.special_pieces import BOS, EOS, PAD, SPECIAL_TOKENS, UNK
from ..errors import bad_data
from ..lazy_import import LazyModule
from .word_splitting import RECORDS, WordSplitting

if TYPE_CHECKING:
    import tokenizers
    from tokenizers import Tokenizer, normalizers
else:
    tokenizers = LazyModule("tokenizers")
    normalizers = LazyModule("tokenizers.normalizers")

SOURCE_FILE = "tokenizer.json"
TARGET_FILE = "tokenizer.target.json"
END_OF_WORD = "</w>"
"""The end of the last piece of a word, in vocabularies of characters."""
SUBSTITUTE = "\x1a"
"""ASCII's substitute character; it replaces a character of a foreign script."""


@dataclass(frozen=True)
class TokenizerPair:
    """The tokenizers of a run; if the vocabulary is joint, both have the same entries."""

    source: Tokenizer
    target: Tokenizer
    joint: bool
    splitting: WordSplitting | None = None
    """The splitting into words before tokenisation; None: only the tokenizers split text."""

    @classmethod
    def load(cls, folder: Path) -> TokenizerPair:
        """Read a vocabulary folder. Raises JobError naming a missing or damaged file."""
        source = _load(folder / SOURCE_FILE)
        joint = not (folder / TARGET_FILE).exists()
        target = _without_normalising(source) if joint else _load(folder / TARGET_FILE)
        return cls(source, target, joint, WordSplitting.load(folder))

    def normalising(self, normalise: Normalise) -> TokenizerPair:
        """Return the tokenizers of a version: the source tokenizer normalises with ``normalise`` and strips every line.

        It also makes quotation marks plain if the text of the vocabulary had plain ones.
        """
        normalise = replace(normalise, quotes=normalise.quotes or self.normalise.quotes)
        steps = [*_steps_of(normalise), normalizers.Strip()]
        bare = _without_normalising(self.source)
        return replace(self, source=_with_steps(steps, _from_form(bare.to_str())))

    @cached_property
    def normalise(self) -> Normalise:
        """The normalisation of a source, read from the steps of its tokenizer."""
        steps = _normaliser_steps(json.loads(self.source.to_str()))
        patterns = {step.get("pattern", {}).get("Regex") for step in steps}
        return Normalise(
            nfc=any(step["type"] == "NFC" for step in steps),
            control=REMOVED in patterns,
            white_space=UNEVEN in patterns,
            quotes=not patterns.isdisjoint(PLAIN_QUOTES),
        )

    @cached_property
    def _reading(self) -> normalizers.Normalizer:
        return normalizers.Sequence(_steps_of(self.normalise))

    @property
    def foreign_unknown(self) -> bool:
        """Whether the tokenizer reads characters of foreign scripts as ``<unk>``."""
        return any(step.get("content") == SUBSTITUTE for step in _normaliser_steps(json.loads(self.source.to_str())))

    @property
    def lowercases(self) -> bool:
        """Whether the tokenizer lower-cases text; output is then lower-cased too."""
        return any(step.get("type") == "Lowercase" for step in _normaliser_steps(json.loads(self.source.to_str())))

    @property
    def source_size(self) -> int:
        """Size of the source vocabulary, including special pieces."""
        return int(self.source.get_vocab_size())

    @property
    def target_size(self) -> int:
        """Size of the target vocabulary, including special pieces."""
        return int(self.target.get_vocab_size())

    def read(self, lines: Sequence[str]) -> list[str]:
        """Return each line normalised and stripped, as the model reads it in use and in evaluation."""
        return [self._reading.normalize_str(line).strip() for line in lines]

    def encode_source(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the piece ids of each line, without special pieces."""
        return _encode(self.source, self.split(self.read(lines), 0) if self.splitting else lines)

    def encode_target(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the piece ids of each line, without special pieces."""
        return _encode(self.target, self.split(lines, 1))

    def split(self, lines: Sequence[str], side: int) -> Sequence[str]:
        """Split lines of a side (0: source, 1: target) into words if the vocabulary has a word splitting."""
        return self.splitting.split(lines, side) if self.splitting else lines

    def decode_target(self, ids: Iterable[int]) -> str:
        """Return the text of one hypothesis, without special pieces; invalid UTF-8 becomes U+FFFD."""
        text = str(self.target.decode(list(ids), skip_special_tokens=True))
        return self.splitting.join(text) if self.splitting else text

    def source_pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the readable form of each id; see ``printable_piece``."""
        return _printable(self.source, ids)

    def target_pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the readable form of each id; see ``printable_piece``."""
        return _printable(self.target, ids)


def with_plain_quotes(tokenizer: Tokenizer) -> Tokenizer:
    """Change the tokenizer to read typographic quotation marks as plain ones, and return it."""
    return _with_steps(_steps_of(Normalise(nfc=False, control=False, white_space=False, quotes=True)), tokenizer)


def _steps_of(normalise: Normalise) -> list[normalizers.Normalizer]:
    """Return the normaliser steps that repeat on a line what ``clean`` did to training text, in the same order."""
    regex = tokenizers.Regex
    steps: list[normalizers.Normalizer] = []
    if normalise.control:
        steps.append(normalizers.Replace(regex(REMOVED), ""))
    if normalise.quotes:
        steps += [normalizers.Replace(regex(marks), plain) for marks, plain in PLAIN_QUOTES.items()]
    if normalise.nfc:
        steps.append(normalizers.NFC())
    if normalise.white_space:
        steps += [normalizers.Replace(regex(UNEVEN), " "), normalizers.Strip()]
    return steps


def _with_steps(steps: Sequence[normalizers.Normalizer], tokenizer: Tokenizer) -> Tokenizer:
    """Prepend these steps to the tokenizer's normaliser, and return the tokenizer."""
    tokenizer.normalizer = normalizers.Sequence([*steps, *([tokenizer.normalizer] if tokenizer.normalizer else [])])
    return tokenizer


def write_normalising(vocabulary: Path, normalise: Normalise, folder: Path) -> None:
    """Write the vocabulary of a version (``TokenizerPair.normalising``) into an existing folder.

    Raises JobError if a file of the vocabulary is missing or damaged.
    """
    TokenizerPair.load(vocabulary).normalising(normalise).source.save(str(folder / SOURCE_FILE), pretty=False)
    for name in (TARGET_FILE, *RECORDS):
        if (vocabulary / name).exists():
            shutil.copyfile(vocabulary / name, folder / name)


def foreign_as_substitute(scripts: Sequence[str]) -> normalizers.Replace:
    """Return the normaliser step that replaces each character of a foreign script by ``SUBSTITUTE``.

    All Unicode scripts are foreign except ``scripts``, Common (digits, punctuation, emoji) and Inherited (marks).
    Raises ValueError for an unknown script.
    """
    own = "".join(rf"\p{{{script}}}" for script in (*scripts, "Common", "Inherited"))
    try:
        pattern = tokenizers.Regex(f"[^{own}]")
    except Exception as error:  # tokenizers raises bare Exception
        raise ValueError(f"unknown among the scripts {', '.join(scripts)}: {error}") from error
    return normalizers.Replace(pattern, SUBSTITUTE)


def _normaliser_steps(form: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the steps of a tokenizer's normaliser from the tokenizer's JSON."""
    return (form["normalizer"] or {}).get("normalizers", [])


def _without_normalising(tokenizer: Tokenizer) -> Tokenizer:
    """Return a copy that does not normalise; the tokenizer itself if it does not normalise."""
    form = json.loads(tokenizer.to_str())
    steps = _normaliser_steps(form)
    kept = [step for step in steps if not _is_normalising(step)]
    if kept == steps:
        return tokenizer
    form["normalizer"]["normalizers"] = kept
    return _from_form(json.dumps(form))


def _is_normalising(step: dict[str, Any]) -> bool:
    """Whether a step of a normaliser comes from ``Normalise``, not from the vocabulary."""
    pattern = step.get("pattern", {}).get("Regex")
    return step["type"] in ("NFC", "Strip") or pattern in (REMOVED, UNEVEN, *PLAIN_QUOTES)


def _from_form(form: str) -> Tokenizer:
    copy = tokenizers.Tokenizer.from_str(form)
    copy.encode_special_tokens = True
    return copy


def of_characters(tokenizer: Tokenizer) -> bool:
    """Whether the pieces are made of characters instead of bytes."""
    return bool(getattr(tokenizer.model, "end_of_word_suffix", None))


def _printable(tokenizer: Tokenizer, ids: Iterable[int]) -> list[str]:
    characters = of_characters(tokenizer)
    return [printable_piece(tokenizer.id_to_token(i) or SPECIAL_TOKENS[UNK], characters) for i in ids]


def printable_piece(piece: str, characters: bool = False) -> str:
    r"""Return the readable form of a piece.

    Byte-level: ``Ġdog`` becomes ``▁dog``, half a character becomes ``\xc3``. Characters: ``dog</w>``, the end of a
    word, becomes ``dog▁``."""
    if piece in SPECIAL_TOKENS:
        return piece
    if characters:
        text = piece.removesuffix(END_OF_WORD) + " " * piece.endswith(END_OF_WORD)
    else:
        text = bytes(BYTE_DECODER[c] for c in piece).decode("utf-8", errors="backslashreplace")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text.replace(" ", "▁"))


def _byte_decoder() -> dict[str, int]:
    """Return the inverse of GPT-2's byte alphabet: printable Latin-1 maps to itself, other bytes to U+0100 and more."""
    itself = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    others = [b for b in range(256) if b not in set(itself)]
    return {chr(b): b for b in itself} | {chr(256 + n): b for n, b in enumerate(others)}


BYTE_DECODER = _byte_decoder()
"""Maps each character of a piece to its byte."""


def _load(path: Path) -> Tokenizer:
    if not path.is_file():
        raise bad_data(f"the vocabulary folder {path.parent} has no {path.name}")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises bare Exception
        raise bad_data(f"{path} is not a readable tokenizer: {error}") from error
    ids = tuple(tokenizer.token_to_id(special) for special in SPECIAL_TOKENS)
    if ids != (PAD, BOS, EOS, UNK):
        raise bad_data(f"{path} gives {', '.join(SPECIAL_TOKENS)} the ids {ids}, allowed is {(PAD, BOS, EOS, UNK)}")
    tokenizer.encode_special_tokens = True
    return tokenizer


def _encode(tokenizer: Tokenizer, lines: Sequence[str]) -> list[list[int]]:
    return [e.ids for e in tokenizer.encode_batch_fast(list(lines), add_special_tokens=False)]
