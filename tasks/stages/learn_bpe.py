"""Learns a vocabulary from a cleaned corpus (§5.1): BPE of bytes or of characters, or whole words.

    tokenizer.json    tokenizer.target.json (only if each side has its own)    a record, if words are split first

``transformers.PreTrainedTokenizerFast(tokenizer_file=...)`` loads these files too; this project loads them by
``model.data.bpe``.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from infra.errors import BadConfiguration
from infra.extras import check_installed
from infra.store.files import write_atomically
from infra.store.store import Artifact
from model.config.keying import require, unkeyed_default
from model.config.special_pieces import SPECIAL_TOKENS, UNK
from model.data.bpe import (
    BYTE_DECODER,
    END_OF_WORD,
    SOURCE_FILE,
    SUBSTITUTE,
    TARGET_FILE,
    TokenizerPair,
    foreign_as_substitute,
    with_plain_quotes,
)
from model.data.word_splitting import WordSplitting
from model.lazy_import import LazyModule
from tasks.bpe.merges import learn_merges
from tasks.bpe.symbols import byte_codes, character_codes
from tasks.bpe.word_counts import WHOLE_WORD, count_corpus
from tasks.cleaning.filters import SIDES
from tasks.cleaning.partitions import read_batch
from tasks.corpus.noise import NO_NOISE, Augment
from tasks.engine.stage import Facts, progress, site, stage
from tasks.lazy_libraries import np, pl, pq

if TYPE_CHECKING:
    import tokenizers
    from tokenizers import Tokenizer
else:
    tokenizers = LazyModule("tokenizers")

SMALLEST_VOCABULARY = len(SPECIAL_TOKENS) + 256
"""Special tokens and bytes: with fewer entries some text could not be encoded."""
TOKENS = ("bpe", "words", "spacy", "characters")
SAMPLE_PAIRS = 10_000
"""Pairs on which pieces per word are measured; the corpus is shuffled, so the first ones are a random sample."""


@dataclass(frozen=True)
class Vocabulary:
    """The vocabulary to learn. The default is the paper's for En-De: about 37,000 pieces, shared by both sides."""

    size: int = 37_000
    """Entries including special tokens and bytes or characters; per side if ``joint`` is false. The maximum if
    ``tokens`` are words."""
    joint: bool = True
    """One vocabulary for both sides, which ``model.tied`` needs (§3.4, §5.1); false: one for each."""
    lowercase: bool = False
    """Lower-case text before encoding; output is then lower-cased too."""
    nfkc: bool = False
    """Normalise text by Unicode's NFKC before encoding."""
    min_frequency: int = 2
    """Fewest occurrences of a pair of pieces to merge it, or of a word if ``tokens`` are words."""
    scripts: tuple[str, ...] = unkeyed_default(())
    """Unicode scripts of both languages, such as ``Latin``: a character of another script, except Common and
    Inherited, becomes ``<unk>`` in every text. Empty: every character is encoded."""
    tokens: Literal["bpe", "words", "spacy", "characters"] = unkeyed_default("bpe")
    """bpe: pieces of words, merged from bytes; characters: pieces merged from the characters of the text, as in
    subword-nmt, where other characters are ``<unk>`` and output has single spaces; words: whole words with the space
    before them, numbers and runs of punctuation; spacy: the tokens of spaCy's rules for the language, with a space
    between any two tokens in the output. A word that is not in the vocabulary is ``<unk>``."""
    moses: bool = unkeyed_default(False)
    """Normalise punctuation and split text as Moses does (sacremoses) before encoding, after lower-casing; output is
    joined again by Moses' rules."""

    def __post_init__(self) -> None:
        allowed = f"a whole number of at least {SMALLEST_VOCABULARY} (specials and bytes)"
        require(self.size >= SMALLEST_VOCABULARY, "vocabulary.size", self.size, allowed)
        require(self.min_frequency >= 1, "vocabulary.min_frequency", self.min_frequency, "a whole number of at least 1")
        require(self.tokens in TOKENS, "vocabulary.tokens", self.tokens, ", ".join(TOKENS))
        alone = not (self.moses and self.tokens == "spacy")
        require(alone, "vocabulary.moses", self.moses, "false where vocabulary.tokens is spacy")
        for script in self.scripts:
            require(_is_script(script), "vocabulary.scripts", script, "names of Unicode scripts, as in Latin,Greek")

    @property
    def splits_words(self) -> bool:
        """Whether rules for the language split text into words first."""
        return self.moses or self.tokens == "spacy"

    def languages_to_split(self, source: str, target: str) -> tuple[str, ...]:
        """The languages for ``learn_bpe``: of both sides, or none if the tokenizer alone splits the text.

        Raises BadConfiguration if spaCy should split the text but is not installed.
        """
        if self.tokens == "spacy":
            check_installed("spacy", "vocabulary.tokens=spacy")
        return (source, target) if self.splits_words else ()

    def splitting(self, languages: tuple[str, ...]) -> WordSplitting | None:
        """How text of these languages is split; None without languages."""
        by_moses = WordSplitting("moses", languages, self.lowercase)
        return (by_moses if self.moses else WordSplitting("spacy", languages)) if languages else None


def _is_script(name: str) -> bool:
    """Whether polars and tokenizers support a Unicode script of this name."""
    if not re.fullmatch(r"\w+", name):
        return False
    try:
        foreign_as_substitute((name,))
        pl.Series([""]).str.contains(rf"\p{{Script={name}}}")
    except (ValueError, pl.exceptions.ComputeError):
        return False
    return True


def untrained_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """A tokenizer with normalisation and pre-tokenisation, but without merges or words.

    Chunks are GPT-2's: a word with the space before it, a number, a run of punctuation; pieces never cross white space.
    Words are these chunks unsplit, so both kinds of vocabulary are byte-level and decode to text with its spaces. Each
    token of spaCy is a chunk; spaces separate these tokens. If pieces consist of characters, a chunk is the text
    between white space.
    """
    tokenizer = tokenizers.Tokenizer(_model(vocabulary))
    steps = [
        *([tokenizers.normalizers.NFKC()] * vocabulary.nfkc),
        *([tokenizers.normalizers.Lowercase()] * vocabulary.lowercase),
    ]
    if vocabulary.scripts:
        steps.append(foreign_as_substitute(vocabulary.scripts))
    if vocabulary.tokens == "characters":
        tokenizer.normalizer = tokenizers.normalizers.Sequence(steps)
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        tokenizer.decoder = tokenizers.decoders.BPEDecoder(suffix=END_OF_WORD)
        return tokenizer
    tokenizer.normalizer = tokenizers.normalizers.Sequence([*steps, tokenizers.normalizers.Prepend(" ")])
    to_bytes = partial(tokenizers.pre_tokenizers.ByteLevel, add_prefix_space=False)
    if vocabulary.tokens == "spacy":
        each = tokenizers.pre_tokenizers.Split(tokenizers.Regex(WHOLE_WORD), "isolated")
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([each, to_bytes(use_regex=False)])
    else:
        tokenizer.pre_tokenizer = to_bytes(use_regex=True)
    tokenizer.decoder = tokenizers.decoders.Sequence(
        [tokenizers.decoders.ByteLevel(), tokenizers.decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def _model(vocabulary: Vocabulary, *learnt: Any) -> Any:
    """The tokenizer's model, with its pieces and merges once they are learnt."""
    unknown = SPECIAL_TOKENS[UNK]
    if vocabulary.tokens in ("words", "spacy"):
        return tokenizers.models.WordLevel(learnt[0] if learnt else {unknown: UNK}, unk_token=unknown)
    suffix: Any = {"end_of_word_suffix": END_OF_WORD} if vocabulary.tokens == "characters" else {}
    return tokenizers.models.BPE(*learnt, unk_token=unknown, **suffix)


def train_from_counts(counts: Iterable[pl.DataFrame], vocabulary: Vocabulary) -> Tokenizer:
    """Learn the pieces that ``tokenizers.trainers.BpeTrainer`` would find, or the words.

    Each chunk occurs in one frame only. Raises BadConfiguration if the text gives fewer than ``vocabulary.size``
    pieces, or no word.
    """
    tokenizer = untrained_tokenizer(vocabulary)
    if vocabulary.tokens in ("words", "spacy"):
        tokenizer.model = _model(vocabulary, frequent_words(counts, vocabulary))
        tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
        return tokenizer
    codes_of = byte_codes
    letters = BYTE_DECODER
    foreign = {ord(SUBSTITUTE)}
    if vocabulary.tokens == "characters":
        codes_of = character_codes
        # Drop words that contain the mark of a word's end, so that pieces of equal text are equal.
        counts = [frame.filter(~pl.col("chunk").str.contains(END_OF_WORD, literal=True)) for frame in counts]
        letters = characters_of(counts)
        # Learn no merge from words that contain a special token, so that no piece of text is one.
        counts = [frame.filter(~pl.col("chunk").str.contains_any([*SPECIAL_TOKENS])) for frame in counts]
        foreign = {2 * ord(SUBSTITUTE), 2 * ord(SUBSTITUTE) + 1}
    # A letter in no piece is <unk>, and no merge reaches across it.
    letters = {piece: code for piece, code in letters.items() if not (vocabulary.scripts and code in foreign)}
    first = (*SPECIAL_TOKENS, *sorted(letters))
    if len(first) > vocabulary.size:
        found = f"{len(first):,} special tokens and characters"
        raise BadConfiguration(f"vocabulary.size is {vocabulary.size}, but this text has {found}")
    on_progress = partial(progress, text="pieces learnt")
    pieces, merges = learn_merges(
        counts, vocabulary.size, vocabulary.min_frequency, first, letters, on_progress, codes_of
    )
    if len(pieces) < vocabulary.size:
        raise BadConfiguration(
            f"vocabulary.size is {vocabulary.size}, but this corpus gives at most {len(pieces)} pieces "
            f"(vocabulary.min_frequency {vocabulary.min_frequency})"
        )
    tokenizer.model = _model(vocabulary, pieces, merges)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def characters_of(counts: Sequence[pl.DataFrame]) -> dict[str, int]:
    """The characters of all words, and their forms at the end of a word, with their codes (``character_codes``)."""
    codes = {code for frame in counts for code in np.unique(character_codes(frame["chunk"].to_arrow())[0]).tolist()}
    return {chr(code // 2) + END_OF_WORD * (code % 2): code for found in codes for code in (found // 2 * 2, found)}


def frequent_words(counts: Iterable[pl.DataFrame], vocabulary: Vocabulary) -> dict[str, int]:
    """The special tokens and the most frequent words with their ids; equally frequent words in order of text.

    Raises BadConfiguration if no word occurs ``vocabulary.min_frequency`` times.
    """
    known = pl.col("count") >= vocabulary.min_frequency
    if vocabulary.scripts:
        known &= ~pl.col("chunk").str.contains(SUBSTITUTE, literal=True)
    words = pl.concat([frame.filter(known) for frame in counts]).sort("count", "chunk", descending=[True, False])
    if words.is_empty():
        raise BadConfiguration(
            f"vocabulary.min_frequency is {vocabulary.min_frequency}, but no word of this corpus occurs so often"
        )
    letters = {byte: c for c, byte in BYTE_DECODER.items()}
    most = vocabulary.size - len(SPECIAL_TOKENS)
    pieces = ("".join(letters[byte] for byte in word.encode()) for word in words["chunk"].head(most))
    return {piece: number for number, piece in enumerate((*SPECIAL_TOKENS, *pieces))}


def add_tag(tokenizer: Tokenizer, tag: str) -> None:
    """Make ``tag`` one piece with the next id; the text after the tag and a space has the same pieces as alone."""
    # Not a special token: the tokenizers of this project encode those as text.
    tokenizer.add_tokens([tokenizers.AddedToken(tag, rstrip=True, normalized=False, special=False)])


def pieces_per_word(tokenizer: Tokenizer, lines: Sequence[str]) -> float:
    """The average number of pieces per word, where words are separated by white space."""
    words = sum(len(line.split()) for line in lines)
    pieces = sum(len(e.ids) for e in tokenizer.encode_batch_fast(lines, add_special_tokens=False))
    return round(pieces / max(words, 1), 4)


@stage(version=1)
def learn_bpe(
    out: Path,
    corpus: Artifact,
    vocabulary: Vocabulary,
    plain_quotes: bool = False,
    tag: str = "",
    languages: tuple[str, ...] = (),
    augment: Augment = NO_NOISE,
) -> Facts:
    """Learn one joint vocabulary, or one per side, of pieces or words, from ``pairs.parquet`` of ``corpus``.

    With ``plain_quotes`` the text has no typographic quotation marks, and the source's tokenizer reads them as plain.
    ``tag`` is one more piece of the source, beyond ``vocabulary.size``; empty for none. ``languages`` are those of
    source and target if their rules split the text, else empty (``languages_to_split``). The noised copies of
    ``augment`` are counted too: otherwise ALL CAPS would be split into letters.
    """
    pairs = corpus.path() / "pairs.parquet"
    sample = next(pq.ParquetFile(pairs).iter_batches(SAMPLE_PAIRS, columns=["source", "target"]))
    sides = {SOURCE_FILE: SIDES} if vocabulary.joint else {SOURCE_FILE: SIDES[:1], TARGET_FILE: SIDES[1:]}
    splitting = vocabulary.splitting(languages)
    scratch = out / "counts"
    scratch.mkdir()
    untrained = untrained_tokenizer(vocabulary)
    with site().executor(at_once=2) as workers:
        counts = {
            file: count_corpus(pairs, columns, untrained, scratch / file, workers, splitting, augment)
            for file, columns in sides.items()
        }
    for file, parts in counts.items():
        tokenizer = train_from_counts((read_batch([part]) for part in parts), vocabulary)
        if plain_quotes and file == SOURCE_FILE:
            tokenizer = with_plain_quotes(tokenizer)
        if tag and file == SOURCE_FILE:
            add_tag(tokenizer, tag)
        tokenizer.save(str(out / file), pretty=False)
    shutil.rmtree(scratch)
    if splitting:
        name, text = splitting.record
        write_atomically(out / name, text)
    pieces = TokenizerPair.load(out)
    return {
        "size": pieces.source_size,
        "target_size": pieces.target_size,
        "pieces_per_word": pieces_per_word(pieces.source, pieces.split(sample.column("source").to_pylist(), 0)),
        "target_pieces_per_word": pieces_per_word(pieces.target, pieces.split(sample.column("target").to_pylist(), 1)),
    }
