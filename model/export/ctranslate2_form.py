"""Converts a trained model to its CTranslate2 form at first use, caches the form, and searches with it.

A new form is compared with the own search.

A form is in ``<cache>/<digest>/``, with the digest of weights, vocabulary, quantization, CTranslate2's version and the
search and lines of the comparison. Its ``form.json`` holds the checksum of each file and the result of the comparison;
the file's time is the time of the last use. A new form removes the forms with the oldest last use. The cache may be
deleted at any time.
"""

import fcntl
import hashlib
import json
import os
import random
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from ..config import Decoding
from ..config.decoding import COMPARED, Quantization
from ..config.special_pieces import UNK
from ..data.bpe import TokenizerPair
from ..decoding.translation import Hypothesis, Search
from ..decoding.translator import EMPTY_HYPOTHESIS, Translator
from ..network.weights import sha256
from .ctranslate2 import names, write_folder
from .ctranslate2_runtime import Folder, Found

RECORD = "form.json"
LAYOUT = 2
"""A higher number makes all older forms invalid."""
SAMPLE_PIECES = (3, 20)
"""Minimum and maximum length of a random source."""
DIGITS = 20
KEPT = 10
"""Maximum number of forms in a cache folder; each is as large as the model."""


class CTranslate2Search:
    """A loaded CTranslate2 folder that reads and writes token ids."""

    def __init__(
        self, folder: Path, vocabulary: TokenizerPair, threads: int = 1, workers: int = 1, device: str = "cpu"
    ) -> None:
        self.folder = Folder(folder, threads, workers, device)
        self.pieces = names(vocabulary.source)
        self.ids = {piece: number for number, piece in enumerate(names(vocabulary.target))}

    def search_n_best(self, sources: Sequence[Sequence[int]], search: Search) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first; sources are tokens without eos."""
        pieces = [[self.pieces[number] for number in source] for source in sources]
        found = self.folder.search_all(pieces, search.decoding.search())
        return [[self._hypothesis(each) for each in best[: search.n_best]] or [EMPTY_HYPOTHESIS] for best in found]

    def can_search(self, source: Sequence[int], search: Search) -> bool:
        """Whether the longest output that the search allows for a source fits into the positions."""
        return search.decoding.lengths(len(source) + 1)[1] <= self.folder.positions

    def _hypothesis(self, found: Found) -> Hypothesis:
        ids = tuple(self.ids.get(piece, UNK) for piece in found.pieces)
        return Hypothesis(ids, len(ids) + found.finished, found.log_probability, found.score, found.finished)


@dataclass(frozen=True)
class Form:
    """A folder that CTranslate2 loads; ``equal`` of ``sentences`` translations equal those of the own search."""

    folder: Path
    equal: int
    sentences: int


def find_or_make(
    cache: Path,
    weights: Path,
    vocabulary: Path,
    translator: Translator,
    decoding: Decoding,
    quantization: Quantization,
    lines: Sequence[str],
) -> Form:
    """Return the form of a model; make it if there is none or if one of its files is damaged.

    ``open_ctranslate2`` explains the arguments. Processes that need the same form wait for the one that makes it.
    Raises ValueError for a model that CTranslate2 cannot represent, OSError if the cache cannot be written.
    """
    name = _digest(weights, vocabulary, quantization, decoding, lines[:COMPARED])
    folder = cache / name
    with _locked(cache / f"{name}.lock"):
        if (form := _read(folder)) is not None:
            return form
        shutil.rmtree(folder, ignore_errors=True)
        for killed in cache.glob(f"{name}.partial-*"):
            shutil.rmtree(killed, ignore_errors=True)
        partial = cache / f"{name}.partial-{uuid.uuid4().hex[:8]}"
        partial.mkdir()
        try:
            write_folder(name, weights, vocabulary, decoding, partial, quantization)
            equal, sentences = _compare(partial, translator, decoding, lines)
            sums = {file.name: sha256(file) for file in sorted(partial.iterdir())}
            record = {"equal": equal, "sentences": sentences, "files": sums}
            (partial / RECORD).write_text(json.dumps(record, indent=1) + "\n")
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        _remove_unused(cache)
    return Form(folder, equal, sentences)


def _compare(folder: Path, translator: Translator, decoding: Decoding, lines: Sequence[str]) -> tuple[int, int]:
    """Return the number of sentences that both engines translate equally, and the number of all sentences."""
    longest = translator.longest_source
    vocabulary = translator.vocabulary
    encoded = vocabulary.encode_source(vocabulary.read(lines[:COMPARED]))
    sources = [source for source in encoded if 0 < len(source) <= longest] or _drawn(translator)
    own = translator.search(sources, decoding)
    found = CTranslate2Search(folder, vocabulary).search_n_best(sources, Search(decoding))
    return sum(a.pieces == b.pieces for a, (b, *_) in zip(own, found, strict=True)), len(sources)


def _drawn(translator: Translator) -> list[list[int]]:
    """Return sources of random tokens, the same for all models with the same number of tokens."""
    draw = random.Random(COMPARED)
    size = translator.vocabulary.source_size
    (shortest, longest) = SAMPLE_PIECES
    longest = min(longest, translator.longest_source)
    return [[draw.randrange(UNK + 1, size) for _ in range(draw.randint(shortest, longest))] for _ in range(COMPARED)]


def _read(folder: Path) -> Form | None:
    """Read the form in ``folder``; None if there is none, or if a file has changed."""
    try:
        record = json.loads((folder / RECORD).read_text())
        if any(sha256(folder / name) != digest for name, digest in record["files"].items()):
            return None
        form = Form(folder, int(record["equal"]), int(record["sentences"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    with suppress(OSError):  # another user's form can be read, but not marked as used
        os.utime(folder / RECORD)
    return form


def _remove_unused(cache: Path) -> None:
    """Remove all forms except the ``KEPT`` forms that were used last."""
    used: list[tuple[int, Path]] = []
    for record in cache.glob(f"*/{RECORD}"):
        with suppress(FileNotFoundError):  # another process has just removed it
            used.append((record.stat().st_mtime_ns, record.parent))
    for _, folder in sorted(used, reverse=True)[KEPT:]:
        shutil.rmtree(folder, ignore_errors=True)


def _digest(
    weights: Path, vocabulary: Path, quantization: Quantization, decoding: Decoding, lines: Sequence[str]
) -> str:
    """Return the name of a form, a digest of all that decides its content and its comparison."""
    parts = [f"{LAYOUT}", version("ctranslate2"), quantization, json.dumps([decoding.search(), *lines])]
    for folder in (weights, vocabulary):
        parts += [f"{file.name} {sha256(file)}" for file in sorted(folder.iterdir()) if file.is_file()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:DIGITS]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock on this machine; wait while another process holds it. A lock ends with its process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
