"""Weights and a vocabulary become something that translates: lines in, lines out, and what the model thought of them.

It sorts by length and forms batches inside; callers see only their own order. It knows nothing of files but the two
folders that it is loaded from. Shape suffixes are those of ``model.network.transformer``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..config import Decoding, Sampling
from ..config.keying import require
from ..config.special_pieces import BOS, EOS, PAD
from ..data.bpe import TokenizerPair
from ..job import JobSettings
from ..network.attention_maps import AttentionMaps, attention_maps
from ..network.transformer import Transformer
from ..network.weights import load_model
from .beam_search import Hypothesis, SearchConstraints, SpecialIds, beam_search
from .sampling import sample

ProgressCallback = Callable[[int, int], None]
"""Called with the number of sentences done and of all sentences."""
Prefixes = Mapping[int, Sequence[int]]
"""The pieces with which the outputs of some sources, by number, are to begin."""
Answer = TypeVar("Answer")

SPECIAL_IDS = SpecialIds(BOS, EOS, forbidden=(PAD, BOS))
BATCH_PIECES = {"cpu": 1_024, "cuda": 16_384}
"""Source pieces of a batch, eos and padding counted, by type of device; each has a whole beam of target rows."""
MIN_COUNTED_LENGTH = 8
"""Pieces that the shortest source counts for in a batch."""
LONGEST_SOURCE = 1_000
"""Pieces of the longest source, where the model itself sets no limit."""
EMPTY_HYPOTHESIS = Hypothesis((), 0.0, 0.0, finished=True)
"""What an empty source is translated to, without asking the model."""


@dataclass(frozen=True)
class Translation:
    """A line's translation. ``pieces`` are without eos; ``length`` counts it, and ``score`` is ``log_probability``
    over the length penalty. Not ``finished``: cut at the greatest length that the decoding allows."""

    text: str
    score: float
    log_probability: float
    pieces: tuple[int, ...]
    length: int
    finished: bool


class CachedDecoder:
    """A ``model.decoding.beam_search.IncrementalDecoder`` over a Transformer that computes each target position
    once."""

    def __init__(
        self, model: Transformer, sources: Sequence[Sequence[int]], device: torch.device, record_attention: bool = False
    ) -> None:
        """``sources`` are pieces with eos. Only a step that is ``record_attention`` can tell its ``attention``."""
        self.model, self.record_attention = model, record_attention
        self.cache = model.start_cache(*model.encode(pad_sequences(sources, device)))
        self.weights: list[Tensor] = []

    def advance(self, pieces_R: Tensor) -> Tensor:
        if not self.record_attention:
            return self.model.logits(self.model.decode(pieces_R[:, None], self.cache)[:, -1])
        with self.model.record_cross_attention() as self.weights:
            return self.model.logits(self.model.decode(pieces_R[:, None], self.cache)[:, -1])

    def attention(self) -> Tensor:
        """The mean over layers and heads."""
        weights_BWS = torch.stack(self.weights).mean(dim=(0, 2))
        if self.cache.source_mask_B11S is not None:
            weights_BWS = weights_BWS.masked_fill(~self.cache.source_mask_B11S[:, 0], 1.0)
        return weights_BWS.flatten(0, 1)

    def reorder(self, rows_R: Tensor) -> None:
        self.cache.reorder(rows_R)

    def keep_sentences(self, sentences_B: Tensor) -> None:
        self.cache.keep_sources(sentences_B)


class Translator:
    """A model with its vocabulary on a device. Raises ValueError where their sizes differ."""

    def __init__(self, model: Transformer, vocabulary: TokenizerPair, device: torch.device) -> None:
        require(
            model.source_size == vocabulary.source_size,
            "source vocabulary size",
            vocabulary.source_size,
            f"the model's {model.source_size}",
        )
        require(
            model.target_size == vocabulary.target_size,
            "target vocabulary size",
            vocabulary.target_size,
            f"the model's {model.target_size}",
        )
        self.model, self.vocabulary, self.device = model, vocabulary, device
        self.batch_pieces = BATCH_PIECES[device.type]
        learned = model.config.positions == "learned"
        self.longest_source = model.config.max_positions - 1 if learned else LONGEST_SOURCE
        self.longest_target = model.config.max_positions if learned else 10 * LONGEST_SOURCE
        """Longest target, eos counted."""

    @classmethod
    def load(
        cls,
        weights: Path,
        vocabulary: Path,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        threads: int | None = None,
    ) -> "Translator":
        """Read a folder of weights (``model.safetensors``, ``model.json``) and a vocabulary folder.

        ``threads`` is set for the whole process; without it torch's own number stays. Raises JobError for weights or
        a vocabulary that are not whole, or for a missing GPU, ValueError where they do not fit.
        """
        if threads is not None:
            torch.set_num_threads(threads)
        where = JobSettings(device=device).torch_device()
        return cls(load_model(weights, where), TokenizerPair.load(vocabulary), where)

    def translate(
        self, lines: Sequence[str], decoding: Decoding, progress: ProgressCallback | None = None
    ) -> list[Translation]:
        """Translate lines, each a sentence; the answers are in their order, and an empty line stays empty. Whoever has
        longer ones takes ``model.decoding.lines``.

        Raises ValueError naming the line (counted from 1) whose source is too long for the model.
        """
        sources = self.vocabulary.encode_source([line.strip() for line in lines])
        for number, source in enumerate(sources, start=1):
            self.check_source(source, f"line {number}")
        return [self.translation(hypothesis) for hypothesis in self.search(sources, decoding, progress)]

    def check_source(self, source: Sequence[int], name: str) -> None:
        """Raise ValueError naming the source, its length and the limit where it is too long."""
        if len(source) > self.longest_source:
            raise ValueError(
                f"{name} has {len(source)} pieces, the longest that this model takes has {self.longest_source}"
            )

    def check_target(self, target: Sequence[int], name: str) -> None:
        """Raise ValueError naming the target, its length and the limit where it is too long."""
        longest = self.longest_target - 1
        if len(target) > longest:
            raise ValueError(f"{name} has {len(target)} pieces, the longest that this model takes has {longest}")

    def translation(self, hypothesis: Hypothesis) -> Translation:
        """A hypothesis with its text."""
        return Translation(
            self.text(hypothesis),
            hypothesis.score,
            hypothesis.log_probability,
            hypothesis.pieces,
            hypothesis.length,
            hypothesis.finished,
        )

    def text(self, hypothesis: Hypothesis) -> str:
        """The text of a hypothesis, always one line: lines out must be as many as lines in."""
        return " ".join(self.vocabulary.decode_target(hypothesis.pieces).splitlines())

    def search(
        self, sources: Sequence[Sequence[int]], decoding: Decoding, progress: ProgressCallback | None = None
    ) -> list[Hypothesis]:
        """The best hypothesis of each source, as ``search_n_best`` finds it."""
        return [best for best, *_ in self.search_n_best(sources, decoding, 1, progress=progress)]

    def search_n_best(
        self,
        sources: Sequence[Sequence[int]],
        decoding: Decoding,
        n_best: int,
        prefixes: Prefixes | None = None,
        progress: ProgressCallback | None = None,
    ) -> list[list[Hypothesis]]:
        """Beam search (§6.1) over sources given as pieces without eos, in their order: the best of each, best first."""

        @torch.inference_mode()
        def find(numbers: Sequence[int]) -> list[list[Hypothesis]]:
            batch = [[*sources[n], EOS] for n in numbers]
            step = CachedDecoder(self.model, batch, self.device, record_attention=decoding.beta > 0)
            constraints = [self.constraints_for(sources[n], decoding, (prefixes or {}).get(n, ())) for n in numbers]
            return beam_search(step, constraints, decoding, SPECIAL_IDS, self.device, n_best)

        return self._in_batches(sources, find, [EMPTY_HYPOTHESIS], progress)

    def sample(
        self,
        sources: Sequence[Sequence[int]],
        sampling: Sampling,
        decoding: Decoding,
        prefixes: Prefixes | None = None,
        progress: ProgressCallback | None = None,
        first: int = 0,
    ) -> list[Hypothesis]:
        """One output of each source, drawn by its probabilities; of ``decoding`` only the lengths count.

        ``first`` is the number of the first source among all that are drawn with this seed: no two share their chances.
        """

        @torch.inference_mode()
        def find(numbers: Sequence[int]) -> list[Hypothesis]:
            step = CachedDecoder(self.model, [[*sources[n], EOS] for n in numbers], self.device)
            constraints = [self.constraints_for(sources[n], decoding, (prefixes or {}).get(n, ())) for n in numbers]
            return sample(step, constraints, sampling, SPECIAL_IDS, self.device, [first + n for n in numbers])

        return self._in_batches(sources, find, EMPTY_HYPOTHESIS, progress)

    def constraints_for(self, source: Sequence[int], decoding: Decoding, prefix: Sequence[int]) -> SearchConstraints:
        """What is asked of a source's output; room is left for one piece after the prefix."""
        least, most = decoding.lengths(len(source) + 1)
        most = min(max(most, len(prefix) + 1), self.longest_target)
        return SearchConstraints(most, min(least, most), tuple(prefix))

    def _in_batches(
        self,
        sources: Sequence[Sequence[int]],
        find: Callable[[Sequence[int]], Sequence[Answer]],
        nothing: Answer,
        progress: ProgressCallback | None,
    ) -> list[Answer]:
        """What ``find`` answers to batches of sources, by number, in the sources' order; ``nothing`` to empty ones."""
        answers = [nothing] * len(sources)
        asked = [number for number, source in enumerate(sources) if len(source)]
        done = len(sources) - len(asked)
        lengths = [len(sources[number]) + 1 for number in asked]
        for batch in batch_by_length(lengths, self.batch_pieces):
            numbers = [asked[position] for position in batch]
            for number, answer in zip(numbers, find(numbers), strict=True):
                answers[number] = answer
            done += len(numbers)
            if progress is not None:
                progress(done, len(sources))
        return answers

    @torch.inference_mode()
    def log_probabilities(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        progress: ProgressCallback | None = None,
    ) -> list[float]:
        """Natural log-probability of each target given its source, eos counted, unsmoothed (§6.2's perplexity).

        Both are pieces without eos. Raises ValueError where a target is longer than a learned position table.
        """
        found = [0.0] * len(sources)
        done = 0
        lengths = [max(len(source), len(target)) + 1 for source, target in zip(sources, targets, strict=True)]
        for numbers in batch_by_length(lengths, self.batch_pieces):
            source_BS = pad_sequences([[*sources[n], EOS] for n in numbers], self.device)
            target_BT = pad_sequences([[BOS, *targets[n], EOS] for n in numbers], self.device)
            logits_BTN = self.model.logits(self.model(source_BS, target_BT[:, :-1]))
            losses_BT = F.cross_entropy(
                logits_BTN.flatten(0, 1), target_BT[:, 1:].flatten(), reduction="none", ignore_index=PAD
            )
            sums_B = -losses_BT.view(len(numbers), -1).double().sum(dim=1)
            for number, log_p in zip(numbers, sums_B.tolist(), strict=True):
                found[number] = log_p
            done += len(numbers)
            if progress is not None:
                progress(done, len(sources))
        return found

    def cross_attention(self, source: Sequence[int], hypothesis: Hypothesis) -> Tensor:
        """Weights (L, H, T, S) with which each written piece, eos counted, looked at source and eos."""
        target = [BOS, *hypothesis.pieces][: max(hypothesis.length, 1)]
        weights_LBHTS = self.model.cross_attention(
            pad_sequences([[*source, EOS]], self.device), pad_sequences([target], self.device)
        )
        return weights_LBHTS[:, 0].cpu()

    def attention_maps(self, source: Sequence[int], target: Sequence[int], finished: bool = True) -> AttentionMaps:
        """Weights of all heads without the dimension B, for a source and a target, both given without eos.

        Of the target, rows are what is written, of a finished one eos last, and columns what has been read, bos first.
        """
        read = [BOS, *target][: max(len(target) + finished, 1)]
        maps = attention_maps(
            self.model, pad_sequences([[*source, EOS]], self.device), pad_sequences([read], self.device)
        )
        return AttentionMaps(*(weights[:, 0].float().cpu() for weights in (maps.encoder, maps.decoder, maps.cross)))


def pad_sequences(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Pieces as one array (rows, longest), padded at the end."""
    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows], dtype=torch.int64, device=device)


def batch_by_length(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Positions in ``lengths`` by falling length, together: longest times number is at most ``budget``, or one alone.

    The longest come first, so that what does not fit into memory shows at once. The shortest count for more, since the
    scores of a step take as much for them as for any.
    """
    order = sorted(range(len(lengths)), key=lambda position: -lengths[position])
    start = 0
    while start < len(order):
        end = start + max(1, budget // max(MIN_COUNTED_LENGTH, lengths[order[start]]))
        yield order[start:end]
        start = end
