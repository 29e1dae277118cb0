"""Translates lines with a model in CTranslate2's format: ``python translate.py < in.txt > out.txt``.

This file is copied into the model's folder. It needs only ctranslate2, tokenizers, and sentencex to split lines into
sentences. The folder also holds the files of CTranslate2, ``tokenizer.json``, ``tokenizer.target.json`` if the target
has its own vocabulary, ``search.json`` with the search settings, the number of positions and the language of the
source, ``sentence_splitting.py``, and ``word_splitting.py`` if sacremoses splits text into words first.
"""

# The search ranks hypotheses by the paper's length penalty, ((5 + length) / 6) ** alpha, or by length ** alpha.
# CTranslate2 only has the second one, so this module requests the likeliest hypotheses and ranks them itself. Two
# differences to the project's own search remain. Forbidden tokens (padding, bos, eos below the minimum length) are
# excluded from the softmax, but the own search includes them. If more than ``beam`` hypotheses finish, the least likely
# are not ranked.

import argparse
import importlib.util
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import ctranslate2
from tokenizers import Tokenizer

BATCH_PIECES = 1_024
"""Maximum source tokens of a batch, with eos and padding."""
EOS = "</s>"
LEAST_SHARE = 4
"""Minimum number of sources for a worker: splitting fewer sources costs more time than it saves."""
NEVER = ["<pad>", "<s>"]
SENTENCES = "sentence_splitting.py"
SPLITTING = "word_splitting.py"
NO_PENALTY = 1e-9
"""Almost 0, so that scores are log-probabilities; with 0 CTranslate2 stops when no likelier hypothesis can follow."""


class Folder:
    """A loaded model folder. ``search`` holds the settings of ``search.json``, the fields of ``Decoding``."""

    def __init__(self, folder: Path, threads: int = 0, workers: int = 1, device: str = "cpu") -> None:
        """``threads`` compute each batch (0: CTranslate2's default); ``workers`` batches are computed at the same time.

        The sources of one call are divided among the workers."""
        settings = json.loads((folder / "search.json").read_text())
        self.search: dict[str, Any] = settings["decoding"]
        self.positions: int = settings["positions"]
        self.longest: int = settings["longest"]
        self.language: str = settings["source_language"]
        self.folder = folder
        self.workers = workers
        self.model = ctranslate2.Translator(str(folder), device, intra_threads=threads, inter_threads=workers)

    @cached_property
    def source(self) -> Tokenizer:
        return tokenizer(self.folder / "tokenizer.json")

    @cached_property
    def target(self) -> Tokenizer:
        path = self.folder / "tokenizer.target.json"
        return tokenizer(path) if path.exists() else self.source

    @cached_property
    def read(self) -> Callable[[str], str]:
        """A function that normalises a line like the training text: by the tokenizer's steps up to its last strip."""
        form = json.loads(self.source.to_str())
        steps = (form["normalizer"] or {}).get("normalizers", [])
        last = max((number for number, step in enumerate(steps, 1) if step["type"] == "Strip"), default=0)
        form["normalizer"] = {"type": "Sequence", "normalizers": steps[:last]}
        normalizer = Tokenizer.from_str(json.dumps(form)).normalizer
        return lambda line: str(normalizer.normalize_str(line)).strip()

    @cached_property
    def splitting(self) -> Any:
        """The splitting into words before tokenisation; None: only the tokenizer splits text."""
        return self._module(SPLITTING).WordSplitting.load(self.folder) if (self.folder / SPLITTING).exists() else None

    @cached_property
    def sentences(self) -> Callable[[str], Sequence[str]]:
        """A function that splits a line into sentences. Raises ModuleNotFoundError if sentencex is not installed."""
        splitter: Callable[[str], Callable[[str], Sequence[str]]] = self._module(SENTENCES).splitter
        return splitter(self.language)

    def _module(self, file: str) -> Any:
        path = self.folder / file
        spec: Any = importlib.util.spec_from_file_location(path.stem, path)
        module: Any = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module  # the dataclass in it needs this entry
        spec.loader.exec_module(module)
        return module

    def pieces(self, lines: Sequence[str]) -> list[list[str]]:
        """Return the tokens of each line, without special ones."""
        lines = [self.read(line) for line in lines]
        if self.splitting:
            lines = self.splitting.split(lines, 0)
        return [each.tokens for each in self.source.encode_batch(lines, add_special_tokens=False)]

    def text(self, pieces: Sequence[str]) -> str:
        """Return the text of a hypothesis's tokens as one line."""
        ids: list[Any] = [self.target.token_to_id(piece) for piece in pieces]
        text = self.target.decode(ids, skip_special_tokens=True)
        return " ".join((self.splitting.join(text) if self.splitting else text).splitlines())

    def translate(self, lines: Sequence[str], search: Mapping[str, Any], split: bool = True) -> list[str]:
        """Translate lines in order, sentence by sentence; without ``split`` a line is one sentence.

        An empty line stays empty. Raises ValueError naming the line (counted from 1) with a too long sentence,
        ModuleNotFoundError for ``split`` without sentencex.
        """
        texts = [self.sentences(self.read(line)) if split else [line] for line in lines]
        encoded = iter(self.pieces([sentence for text in texts for sentence in text]))
        sources = [[next(encoded) for _ in text] for text in texts]
        for number, sentences in enumerate(sources, start=1):
            longest = max(map(len, sentences), default=0)
            if longest > self.longest:
                raise ValueError(
                    f"line {number} has {longest} pieces, the longest that this model takes has {self.longest}"
                )
        found = iter(self.search_best([pieces for sentences in sources for pieces in sentences], search))
        return [" ".join(filter(None, (self.text(next(found)) for _ in sentences))) for sentences in sources]

    def search_best(self, sources: Sequence[Sequence[str]], search: Mapping[str, Any]) -> list[list[str]]:
        """Return the best hypothesis of each source; both are tokens without eos."""
        return [found[0].pieces if found else [] for found in self.search_all(sources, search)]

    def search_all(self, sources: Sequence[Sequence[str]], search: Mapping[str, Any]) -> list[list["Found"]]:
        """Return the hypotheses of each source, best first; an empty source has none."""
        sizes = [len(source) + 1 for source in sources]
        groups = list(batches(sizes, search, max(LEAST_SHARE, math.ceil(len(sizes) / self.workers))))
        found = self._search(sources, groups, search)
        # The longest source of a batch sets the maximum output length for all. Sources with outputs beyond their own
        # maximum are searched again.
        beyond: dict[int, list[int]] = {}
        for group in groups:
            longest = lengths(search, sizes[group[0]])[1]
            for number in group:
                own = lengths(search, sizes[number])[1]
                if own < longest and len(found[number][0].pieces) >= own:
                    beyond.setdefault(sizes[number], []).append(number)
        for size, numbers in beyond.items():
            count = max(1, BATCH_PIECES // size)
            found |= self._search(sources, (numbers[i : i + count] for i in range(0, len(numbers), count)), search)
        return [found.get(number, []) for number in range(len(sources))]

    def _search(
        self, sources: Sequence[Sequence[str]], groups: Iterable[list[int]], search: Mapping[str, Any]
    ) -> dict[int, list["Found"]]:
        """Search each group of source numbers as one batch; return the hypotheses, best first, by source number."""
        pending: list[tuple[int, Any]] = []
        for group in groups:
            arguments = translate_arguments(search, max(len(sources[n]) + 1 for n in group), self.positions)
            futures = self.model.translate_batch([sources[n] for n in group], **arguments, asynchronous=True)
            pending += zip(group, futures, strict=True)
        found = {}
        for number, future in pending:  # ranks results while CTranslate2 searches later batches
            result = future.result()
            found[number] = ranked(result.hypotheses, result.scores, search)
        return found


class Found(NamedTuple):
    """A hypothesis; ``score`` includes the length penalty of the search, ``pieces`` are tokens without eos."""

    finished: bool
    score: float
    log_probability: float
    pieces: list[str]


def translate_arguments(search: Mapping[str, Any], source: int, positions: int) -> dict[str, Any]:
    """Return the arguments of ``ctranslate2.Translator.translate_batch``; ``ranked`` orders its results.

    ``search`` holds the fields of ``Decoding``; ``source`` is the length of the batch's longest source, with eos.
    """
    least, most = lengths(search, source)
    most = min(most, positions)
    return {
        "beam_size": search["beam"],
        "num_hypotheses": search["beam"],
        "length_penalty": NO_PENALTY,
        "max_decoding_length": most,
        "min_decoding_length": min(least, most) - 1,
        "max_input_length": 0,
        "suppress_sequences": [[piece] for piece in NEVER],
        "return_end_token": True,
        "return_scores": True,
    }


def ranked(
    hypotheses: Sequence[Sequence[str]], log_probabilities: Sequence[float], search: Mapping[str, Any]
) -> list[Found]:
    """Return the hypotheses of a sentence, best first; unfinished ones follow all finished ones."""
    found = []
    for hypothesis, log_probability in zip(hypotheses, log_probabilities, strict=True):
        end = hypothesis[-1:] == [EOS]
        length = len(hypothesis)
        penalty = (length if search["length_penalty"] == "length" else (5 + length) / 6) ** search["alpha"]
        found.append(
            Found(end, log_probability / penalty, log_probability, list(hypothesis[:-1] if end else hypothesis))
        )
    return sorted(found, key=lambda one: one[:2], reverse=True)


def lengths(search: Mapping[str, Any], source: int) -> tuple[int, int]:
    """Return the minimum and maximum output length for a source of ``source`` tokens; all lengths include eos."""
    most = source - 1 + search["max_extra"]
    return min(1 + search["min_length"], most), most


def batches(source: Sequence[int], search: Mapping[str, Any], most: int) -> Iterator[list[int]]:
    """Yield batches of at most ``most`` source numbers by descending length.

    All sources of a batch have the same minimum output length. Empty sources (only eos) are left out.
    """
    order = sorted((n for n, length in enumerate(source) if length > 1), key=lambda n: -source[n])
    start = 0
    while start < len(order):
        longest = source[order[start]]
        least = lengths(search, longest)[0]
        end = start + 1
        while end < min(len(order), start + most) and (end + 1 - start) * longest <= BATCH_PIECES:
            if lengths(search, source[order[end]])[0] != least:
                break
            end += 1
        yield order[start:end]
        start = end


def tokenizer(path: Path) -> Tokenizer:
    """Load a tokenizer that encodes markup in a text, such as a literal ``</s>``, as text."""
    found = Tokenizer.from_file(str(path))
    found.encode_special_tokens = True
    return found


def main() -> None:
    """Translate the lines of stdin to stdout."""
    parser = argparse.ArgumentParser(description="Translate lines of stdin to stdout.")
    parser.add_argument(
        "--folder", type=Path, default=Path(__file__).resolve().parent, help="the model's folder (default: this one)"
    )
    parser.add_argument("--beam", type=int, help="hypotheses kept at each step; 1 is greedy search, the fastest")
    parser.add_argument("--alpha", type=float, help="exponent of the length penalty")
    parser.add_argument("--no-split", action="store_true", help="take each line as one sentence, without sentencex")
    parser.add_argument("--threads", type=int, default=0, help="threads of each batch; 0 is CTranslate2's default")
    parser.add_argument("--workers", type=int, default=1, help="batches computed at once, each with its threads")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options = parser.parse_args()
    if not options.no_split and importlib.util.find_spec("sentencex") is None:
        parser.error("sentencex is missing: pip install sentencex, or take each line as one sentence with --no-split")
    changed = {name: getattr(options, name) for name in ("beam", "alpha") if getattr(options, name) is not None}
    if not 1 <= changed.get("beam", 1) <= 1_000 or not 0 <= changed.get("alpha", 1.0) <= 100:
        parser.error("allowed are a --beam from 1 to 1000 and an --alpha from 0 to 100")
    if options.threads < 0 or options.workers < 1:
        parser.error("allowed are --threads of at least 0 and --workers of at least 1")
    lines = sys.stdin.buffer.read().decode("utf-8-sig", "replace").split("\n")
    if not lines[-1]:
        lines.pop()
    try:
        folder = Folder(options.folder, options.threads, options.workers, options.device)
        found = folder.translate(lines, folder.search | changed, split=not options.no_split)
    except (ValueError, RuntimeError, ModuleNotFoundError) as error:
        sys.exit(f"translate.py: {error}")
    for text in found:
        print(text)


if __name__ == "__main__":
    main()
