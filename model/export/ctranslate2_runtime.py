"""Translates lines with a model in CTranslate2's format: ``python translate.py < in.txt > out.txt``.

This file lies in the model's folder and needs ctranslate2 and tokenizers, nothing of the project that trained the
model. Beside it are CTranslate2's files, ``tokenizer.json`` (``tokenizer.target.json`` as well where the target has a
vocabulary of its own) and ``search.json``: how this model is searched, and how many positions it has.

The search is that of the model's scores in print, though CTranslate2 divides a log-probability by length ** alpha and
the paper's by ((5 + length) / 6) ** alpha: here the likeliest hypotheses are asked for, and ranked by the paper's.
What remains different: pieces that are never written (padding, bos, and eos below the least length) lose their share of
the probability instead of keeping it, and where more than a beam of hypotheses end, the least likely are not ranked.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ctranslate2
from tokenizers import Tokenizer

BATCH_PIECES = 1_024
"""Source pieces of a batch, eos and padding counted."""
EOS = "</s>"
NEVER = ["<pad>", "<s>"]
NO_PENALTY = 1e-9
"""Scores stay log-probabilities; at 0 itself CTranslate2 would end a search where nothing likelier can come."""


class Folder:
    """A model's folder, loaded. ``search`` is how ``search.json`` has it searched (fields of ``Decoding``)."""

    def __init__(self, folder: Path, threads: int = 0, workers: int = 1, device: str = "cpu") -> None:
        """``threads`` compute each batch (0: CTranslate2's own number), ``workers`` as many batches at once."""
        told = json.loads((folder / "search.json").read_text())
        self.search: dict[str, Any] = told["decoding"]
        self.positions: int = told["positions"]
        self.source = tokenizer(folder / "tokenizer.json")
        own = folder / "tokenizer.target.json"
        self.target = tokenizer(own) if own.exists() else self.source
        self.model = ctranslate2.Translator(str(folder), device, intra_threads=threads, inter_threads=workers)

    def translate(self, lines: Sequence[str], search: Mapping[str, Any]) -> list[str]:
        """Translate lines, in their order; an empty one stays empty.

        Raises ValueError naming the line (counted from 1) that is longer than the model has positions.
        """
        sources = [
            e.tokens for e in self.source.encode_batch([line.strip() for line in lines], add_special_tokens=False)
        ]
        for number, source in enumerate(sources, start=1):
            if len(source) >= self.positions:
                raise ValueError(f"line {number} has {len(source)} pieces, the longest has {self.positions - 1}")
        ids: list[list[int]] = []
        for pieces in self.search_best(sources, search):
            ids.append([self.target.token_to_id(piece) for piece in pieces])  # type: ignore[misc]
        return [" ".join(text.splitlines()) for text in self.target.decode_batch(ids, skip_special_tokens=True)]

    def search_best(self, sources: Sequence[Sequence[str]], search: Mapping[str, Any]) -> list[list[str]]:
        """The best hypothesis of each source; both are pieces without eos."""
        return [found[0].pieces if found else [] for found in self.search_all(sources, search)]

    def search_all(self, sources: Sequence[Sequence[str]], search: Mapping[str, Any]) -> list[list["Found"]]:
        """The hypotheses of each source, best first; none of an empty one."""
        sizes = [len(source) + 1 for source in sources]
        found = self._search(sources, batches(sizes, search), search)
        # A batch goes on to the greatest length of its longest source: who went beyond its own is searched alone.
        beyond = [[n] for n, (first, *_) in found.items() if len(first.pieces) >= lengths(search, sizes[n])[1]]
        found |= self._search(sources, beyond, search)
        return [found.get(number, []) for number in range(len(sources))]

    def _search(
        self, sources: Sequence[Sequence[str]], groups: Iterable[list[int]], search: Mapping[str, Any]
    ) -> dict[int, list["Found"]]:
        """The hypotheses, best first, by the numbers of their sources, those of a group being one batch."""
        waiting: list[tuple[int, Any]] = []
        for group in groups:
            told = translate_arguments(search, max(len(sources[n]) + 1 for n in group), self.positions)
            asked = self.model.translate_batch([sources[n] for n in group], **told, asynchronous=True)
            waiting += zip(group, asked, strict=True)
        answers = {number: result.result() for number, result in waiting}
        return {n: ranked(answer.hypotheses, answer.scores, search) for n, answer in answers.items()}


class Found(NamedTuple):
    """A hypothesis: whether it ended, its score under the paper's length penalty, its pieces without eos."""

    finished: bool
    score: float
    log_probability: float
    pieces: list[str]


def translate_arguments(search: Mapping[str, Any], source: int, positions: int) -> dict[str, Any]:
    """What ``ctranslate2.Translator.translate_batch`` is to be told, for ``best`` to choose from what it gives.

    ``search`` are the fields of ``Decoding``, ``source`` is the length of the batch's longest source in pieces, eos
    counted. Raises ValueError where CTranslate2 has nothing of the kind.
    """
    if search.get("beta"):
        raise ValueError(f"decoding.beta is {search['beta']!r}, allowed is 0: CTranslate2's coverage is of one layer")
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


def best(
    hypotheses: Sequence[Sequence[str]], log_probabilities: Sequence[float], search: Mapping[str, Any]
) -> tuple[list[str], float]:
    """The best of a sentence's hypotheses, without eos, and its score: the first of ``ranked``."""
    first = ranked(hypotheses, log_probabilities, search)[0]
    return first.pieces, first.score


def ranked(
    hypotheses: Sequence[Sequence[str]], log_probabilities: Sequence[float], search: Mapping[str, Any]
) -> list[Found]:
    """A sentence's hypotheses, best first.

    Those that were cut come after all that ended. A greedy search's only one is taken as it is.
    """
    found = []
    for hypothesis, log_probability in zip(hypotheses, log_probabilities, strict=True):
        end = hypothesis[-1:] == [EOS]
        penalty = ((5 + len(hypothesis)) / 6) ** search["alpha"]
        found.append(
            Found(end, log_probability / penalty, log_probability, list(hypothesis[:-1] if end else hypothesis))
        )
    return sorted(found, key=lambda one: one[:2], reverse=True)


def lengths(search: Mapping[str, Any], source: int) -> tuple[int, int]:
    """Least and greatest length of an output, eos counted, for a source of so many pieces, eos counted."""
    most = source - 1 + search["max_extra"]
    if search.get("max_ratio"):
        most = min(most, max(1, math.floor(search["max_ratio"] * source)))
    least = max(1 + search.get("min_length", 0), math.ceil(search.get("min_ratio", 0) * source))
    return min(least, most), most


def batches(source: Sequence[int], search: Mapping[str, Any]) -> Iterator[list[int]]:
    """Numbers of sources by falling length, those of a batch with one least length; empty ones (eos alone) left out."""
    order = sorted((n for n, length in enumerate(source) if length > 1), key=lambda n: -source[n])
    start = 0
    while start < len(order):
        longest = source[order[start]]
        least, end = lengths(search, longest)[0], start + 1
        while end < len(order) and (end + 1 - start) * longest <= BATCH_PIECES:
            if lengths(search, source[order[end]])[0] != least:
                break
            end += 1
        yield order[start:end]
        start = end


def tokenizer(path: Path) -> Tokenizer:
    """A vocabulary for which markup in a text, such as a literal ``</s>``, is text."""
    found = Tokenizer.from_file(str(path))
    found.encode_special_tokens = True
    return found


def main() -> None:
    """Lines from stdin to stdout."""
    parser = argparse.ArgumentParser(description="Translate lines of stdin to stdout.")
    parser.add_argument("--folder", type=Path, default=Path(__file__).resolve().parent, help="the model's (this one)")
    parser.add_argument("--beam", type=int, help="hypotheses kept at each step; 1 is greedy, and the fastest")
    parser.add_argument("--alpha", type=float, help="length penalty ((5 + length) / 6) ** alpha")
    parser.add_argument("--threads", type=int, default=0, help="threads of each batch; 0 leaves it to CTranslate2")
    parser.add_argument("--workers", type=int, default=1, help="batches computed at once, each with its threads")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    told = parser.parse_args()
    changed = {name: getattr(told, name) for name in ("beam", "alpha") if getattr(told, name) is not None}
    folder = Folder(told.folder, told.threads, told.workers, told.device)
    lines = sys.stdin.buffer.read().decode("utf-8", "replace").split("\n")
    if not lines[-1]:
        lines.pop()
    for text in folder.translate(lines, folder.search | changed):
        print(text)


if __name__ == "__main__":
    main()
