"""Tokenizers (§5.1), read from a vocabulary folder; torch-free.

The folder holds ``tokenizer.json``, where each side has its own vocabulary ``tokenizer.target.json``, and where text is
split into words first a record of that (``model.data.word_splitting``).
Encoding returns token ids without ``<s>`` and ``</s>``, which batching adds.

A version is registered with a source tokenizer that normalises as the training text was (``normalising``), for
everything that reads a source; targets are encoded as they are.

Where a run names the scripts of its languages, the tokenizers of both sides read every character of another script as
``<unk>``, in training and in use: the normaliser replaces it by ``SUBSTITUTE``, whose byte is in no piece.

Byte-level tokenizers add a space before every line and remove it in decoding, so that a word has the same pieces at
every position and any other Unicode text survives the round trip; those of characters end a word in ``</w>``.
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
from ..lazy_import import lazy_import
from .word_splitting import RECORDS, WordSplitting

if TYPE_CHECKING:
    import tokenizers
    from tokenizers import Tokenizer, normalizers
else:
    tokenizers = lazy_import("tokenizers")
    normalizers = lazy_import("tokenizers.normalizers")

SOURCE_FILE = "tokenizer.json"
TARGET_FILE = "tokenizer.target.json"
END_OF_WORD = "</w>"
"""Ends the last piece of a word in vocabularies of characters."""
SUBSTITUTE = "\x1a"
"""ASCII's substitute character, which stands for a character of a foreign script."""


@dataclass(frozen=True)
class TokenizerPair:
    """The tokenizers of a run, with the same entries if the vocabulary is joint."""

    source: Tokenizer
    target: Tokenizer
    joint: bool
    splitting: WordSplitting | None = None
    """How text is split into words first; None where the tokenizers alone split it."""

    @classmethod
    def load(cls, folder: Path) -> TokenizerPair:
        """Read a vocabulary folder. Raises JobError naming a file that is missing or damaged."""
        source = _load(folder / SOURCE_FILE)
        joint = not (folder / TARGET_FILE).exists()
        target = _without_normalising(source) if joint else _load(folder / TARGET_FILE)
        return cls(source, target, joint, WordSplitting.load(folder))

    def normalising(self, normalise: Normalise) -> TokenizerPair:
        """The tokenizers of a version: the source's normalises as its training text was, and strips every line.

        Quotation marks also become plain where they were so when the vocabulary was learnt.
        """
        normalise = replace(normalise, quotes=normalise.quotes or self.normalise.quotes)
        steps = [*_steps_of(normalise), normalizers.Strip()]
        bare = _without_normalising(self.source)
        return replace(self, source=_with_steps(steps, _from_form(bare.to_str())))

    @cached_property
    def normalise(self) -> Normalise:
        """How a source is normalised, from the tokenizer's own steps."""
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
        """Whether characters of foreign scripts are read as ``<unk>``."""
        return any(step.get("content") == SUBSTITUTE for step in _normaliser_steps(json.loads(self.source.to_str())))

    @property
    def lowercases(self) -> bool:
        """Whether text is lower-cased, so that output is too."""
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
        """Each line as the model reads it in use and in evaluation: normalised, without white space at its ends."""
        return [self._reading.normalize_str(line).strip() for line in lines]

    def encode_source(self, lines: Sequence[str]) -> list[list[int]]:
        """Piece ids of each line, without special pieces."""
        return _encode(self.source, self.split(self.read(lines), 0) if self.splitting else lines)

    def encode_target(self, lines: Sequence[str]) -> list[list[int]]:
        """Piece ids of each line, without special pieces."""
        return _encode(self.target, self.split(lines, 1))

    def split(self, lines: Sequence[str], side: int) -> Sequence[str]:
        """Lines of a side, 0 for sources and 1 for targets, as its tokenizer takes them."""
        return self.splitting.split(lines, side) if self.splitting else lines

    def decode_target(self, ids: Iterable[int]) -> str:
        """The text of one hypothesis, without special pieces; invalid UTF-8 becomes U+FFFD."""
        text = str(self.target.decode(list(ids), skip_special_tokens=True))
        return self.splitting.join(text) if self.splitting else text

    def source_pieces(self, ids: Iterable[int]) -> list[str]:
        """The readable form of each id; see ``printable_piece``."""
        return _printable(self.source, ids)

    def target_pieces(self, ids: Iterable[int]) -> list[str]:
        """The readable form of each id; see ``printable_piece``."""
        return _printable(self.target, ids)


def with_plain_quotes(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer, which from now on reads typographic quotation marks as plain ones."""
    return _with_steps(_steps_of(Normalise(nfc=False, control=False, white_space=False, quotes=True)), tokenizer)


def _steps_of(normalise: Normalise) -> list[normalizers.Normalizer]:
    """The steps that do to a line what ``clean`` did to training text, in its order."""
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
    """The tokenizer, which from now on does these steps first."""
    tokenizer.normalizer = normalizers.Sequence([*steps, *([tokenizer.normalizer] if tokenizer.normalizer else [])])
    return tokenizer


def write_normalising(vocabulary: Path, normalise: Normalise, folder: Path) -> None:
    """Write the vocabulary of a version (``TokenizerPair.normalising``) into a folder that exists.

    Raises JobError for a vocabulary that is not whole.
    """
    TokenizerPair.load(vocabulary).normalising(normalise).source.save(str(folder / SOURCE_FILE), pretty=False)
    for name in (TARGET_FILE, *RECORDS):
        if (vocabulary / name).exists():
            shutil.copyfile(vocabulary / name, folder / name)


def foreign_as_substitute(scripts: Sequence[str]) -> normalizers.Replace:
    """The step of a normaliser that replaces each character of a foreign script by ``SUBSTITUTE``.

    Foreign are all Unicode scripts but ``scripts``, Common (digits, punctuation, emoji) and Inherited (marks). Raises
    ValueError for a name that is no script.
    """
    own = "".join(rf"\p{{{script}}}" for script in (*scripts, "Common", "Inherited"))
    try:
        pattern = tokenizers.Regex(f"[^{own}]")
    except Exception as error:  # tokenizers raises bare Exception
        raise ValueError(f"unknown among the scripts {', '.join(scripts)}: {error}") from error
    return normalizers.Replace(pattern, SUBSTITUTE)


def _normaliser_steps(form: dict[str, Any]) -> list[dict[str, Any]]:
    """The steps of a tokenizer's normaliser, from its JSON."""
    return (form["normalizer"] or {}).get("normalizers", [])


def _without_normalising(tokenizer: Tokenizer) -> Tokenizer:
    """A copy that reads text as it is; the tokenizer itself if it does so already."""
    form = json.loads(tokenizer.to_str())
    steps = _normaliser_steps(form)
    kept = [step for step in steps if not _is_normalising(step)]
    if kept == steps:
        return tokenizer
    form["normalizer"]["normalizers"] = kept
    return _from_form(json.dumps(form))


def _is_normalising(step: dict[str, Any]) -> bool:
    """Whether a step of a normaliser is of ``Normalise``, and not of the vocabulary itself."""
    pattern = step.get("pattern", {}).get("Regex")
    return step["type"] in ("NFC", "Strip") or pattern in (REMOVED, UNEVEN, *PLAIN_QUOTES)


def _from_form(form: str) -> Tokenizer:
    copy = tokenizers.Tokenizer.from_str(form)
    copy.encode_special_tokens = True
    return copy


def of_characters(tokenizer: Tokenizer) -> bool:
    """Whether the pieces are characters and merges of them, in place of bytes."""
    return bool(getattr(tokenizer.model, "end_of_word_suffix", None))


def _printable(tokenizer: Tokenizer, ids: Iterable[int]) -> list[str]:
    characters = of_characters(tokenizer)
    return [printable_piece(tokenizer.id_to_token(i) or SPECIAL_TOKENS[UNK], characters) for i in ids]


def printable_piece(piece: str, characters: bool = False) -> str:
    r"""The readable form of a piece. Byte-level: ``Ġdog`` is ``▁dog``, half a character is ``\xc3``; of characters:
    ``dog</w>``, the end of a word, is ``dog▁``."""
    if piece in SPECIAL_TOKENS:
        return piece
    if characters:
        text = piece.removesuffix(END_OF_WORD) + " " * piece.endswith(END_OF_WORD)
    else:
        text = bytes(BYTE_DECODER[c] for c in piece).decode("utf-8", errors="backslashreplace")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text.replace(" ", "▁"))


def _byte_decoder() -> dict[str, int]:
    """The inverse of GPT-2's byte alphabet: printable Latin-1 maps to itself, other bytes to U+0100 and above."""
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
