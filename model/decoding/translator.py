"""``Translator``: a model or an ensemble with its vocabulary; translates and scores sentences in batches.

Sentences are sorted by length for batching; results are in the order of the caller. Shape suffixes are the same as in
``model.network.transformer``.
"""

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..config import Decoding
from ..config.keying import require
from ..config.special_pieces import BOS, EOS, PAD
from ..data.bpe import TokenizerPair
from ..data.ends import number_of_ends, with_ends
from ..job import JobSettings
from ..network.attention_maps import AttentionMaps, attention_maps
from ..network.transformer import Transformer
from ..network.weights import load_model
from .batches import COUNTED_BEAM, batch_by_length, batch_pieces
from .beam_search import BeamEntry, Ensemble, IncrementalDecoder, SearchConstraints, StepObserver, beam_search
from .cached_decoder import DecoderStarter, decoder_starter
from .translation import Hypothesis

ProgressCallback = Callable[[int, int], None]
"""A function called with the number of finished sentences and the number of all sentences."""
Answer = TypeVar("Answer")

LONGEST_SOURCE = 1_000
"""Maximum tokens of a source for a model without its own limit."""
EMPTY_HYPOTHESIS = Hypothesis((), 1, 0.0, 0.0, finished=True)
"""The translation of an empty source; the model does not compute it."""


class Translator:
    """A model with its vocabulary on a device, or an ensemble of ``model`` and ``others`` that averages probabilities.

    ``attention_maps`` of an ensemble uses only ``model``. The models must not change after the first search.
    ``bfloat16`` is ``decoding.precision`` bf16 and applies only to searches. Raises ValueError if the sizes of a
    vocabulary, or the special tokens around a source, differ.
    """

    def __init__(
        self,
        model: Transformer,
        vocabulary: TokenizerPair,
        device: torch.device,
        others: Sequence[Transformer] = (),
        bfloat16: bool = False,
    ) -> None:
        self.model = model
        self.models = (model, *others)
        self.vocabulary = vocabulary
        self.device = device
        self.bfloat16 = bfloat16
        for each in self.models:
            for side in ("source", "target"):
                expected = getattr(each, f"{side}_size")
                size = getattr(vocabulary, f"{side}_size")
                require(size == expected, f"{side} vocabulary size", size, f"the model's {expected}")
        self.source_ends = model.config.source_ends
        for each in others:
            theirs = each.config.source_ends
            allowed = f"{self.source_ends}, as in the first model of the ensemble"
            require(theirs == self.source_ends, "model.source_ends", theirs, allowed)
        self.batch_pieces = batch_pieces(device)
        learned = [each.config.max_positions for each in self.models if each.config.learns_positions]
        self.longest_source = min(learned) - number_of_ends(self.source_ends) if learned else LONGEST_SOURCE
        """Maximum length of a source, without special tokens."""
        self.longest_target = min(learned) if learned else 10 * LONGEST_SOURCE
        """Maximum length of a target, including eos."""

    @classmethod
    def load(
        cls,
        weights: Path,
        vocabulary: Path,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        threads: int | None = None,
    ) -> "Translator":
        """Read a folder of weights (``model.safetensors``, ``model.json``) and a vocabulary folder.

        ``threads`` applies to the whole process; None keeps torch's number. Raises JobError for missing or damaged
        weights or vocabulary or a missing GPU, ValueError if weights and vocabulary do not fit together.
        """
        if threads is not None:
            torch.set_num_threads(threads)
        where = JobSettings(device=device).torch_device()
        return cls(load_model(weights, where), TokenizerPair.load(vocabulary), where)

    def source_tokens(self, source: Sequence[int]) -> list[int]:
        """Return the tokens of a source as the models read them, with special tokens."""
        return with_ends(source, self.source_ends)

    def check_source(self, source: Sequence[int], name: str) -> None:
        """Raise ValueError with the name, length and limit if a source is too long."""
        if len(source) > self.longest_source:
            raise ValueError(
                f"{name} has {len(source)} pieces, the longest that this model takes has {self.longest_source}"
            )

    def check_target(self, target: Sequence[int], name: str) -> None:
        """Raise ValueError with the name, length and limit if a target is too long."""
        longest = self.longest_target - 1
        if len(target) > longest:
            raise ValueError(f"{name} has {len(target)} pieces, the longest that this model takes has {longest}")

    def text(self, hypothesis: Hypothesis) -> str:
        """Return the text of a hypothesis as one line, so that each source has exactly one line."""
        return " ".join(self.vocabulary.decode_target(hypothesis.pieces).splitlines())

    def search(
        self, sources: Sequence[Sequence[int]], decoding: Decoding, progress: ProgressCallback | None = None
    ) -> list[Hypothesis]:
        """Return the best hypothesis of each source; see ``search_n_best``."""
        return [best for best, *_ in self.search_n_best(sources, decoding, 1, progress=progress)]

    def search_n_best(
        self,
        sources: Sequence[Sequence[int]],
        decoding: Decoding,
        n_best: int,
        progress: ProgressCallback | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the ``n_best`` hypotheses of each source, best first (§6.1). Sources are tokens without eos.

        More hypotheses than the beam are returned only if they finished in the same search.
        """

        def find(numbers: Sequence[int]) -> list[list[Hypothesis]]:
            return self._search([sources[n] for n in numbers], decoding, n_best)

        lengths = [len(source) + 1 if len(source) else 0 for source in sources]
        pieces = self.batch_pieces * COUNTED_BEAM // max(COUNTED_BEAM, decoding.beam)
        return self._in_batches(lengths, pieces, find, [EMPTY_HYPOTHESIS], progress)

    def search_steps(
        self, source: Sequence[int], decoding: Decoding
    ) -> tuple[list[Hypothesis], list[tuple[BeamEntry, ...]]]:
        """Return all hypotheses that a beam search of one source finishes, and the beam after each step."""
        steps: list[tuple[BeamEntry, ...]] = []
        if not source:
            return [EMPTY_HYPOTHESIS], steps
        [found] = self._search(
            [source], decoding, decoding.most_hypotheses, lambda _, entries: steps.append(tuple(entries))
        )
        return found, steps

    @torch.inference_mode()
    def _search(
        self, sources: Sequence[Sequence[int]], decoding: Decoding, n_best: int, observe: StepObserver | None = None
    ) -> list[list[Hypothesis]]:
        """Search non-empty sources as one batch."""
        source_BS = pad_sequences([self.source_tokens(source) for source in sources], self.device)
        steps = [start(source_BS) for start in self._starters]
        step: IncrementalDecoder = steps[0] if len(steps) == 1 else Ensemble(steps)
        constraints = []
        for source in sources:
            shortest, longest = decoding.lengths(len(source) + 1)
            longest = min(longest, self.longest_target)
            constraints.append(SearchConstraints(longest, min(shortest, longest)))
        return beam_search(step, constraints, decoding, self.device, n_best, observe)

    @cached_property
    def _starters(self) -> list[DecoderStarter]:
        return [decoder_starter(model, self.bfloat16) for model in self.models]

    def _in_batches(
        self,
        lengths: Sequence[int],
        pieces: int,
        find: Callable[[Sequence[int]], Sequence[Answer]],
        empty: Answer,
        progress: ProgressCallback | None,
    ) -> list[Answer]:
        """Call ``find`` with batches of indices, each of at most ``pieces`` source tokens.

        Returns the results in order, ``empty`` where the length is 0."""
        answers = [empty] * len(lengths)
        filled = [number for number, length in enumerate(lengths) if length]
        done = len(lengths) - len(filled)
        for batch in batch_by_length([lengths[number] for number in filled], pieces):
            numbers = [filled[position] for position in batch]
            for number, answer in zip(numbers, find(numbers), strict=True):
                answers[number] = answer
            done += len(numbers)
            if progress is not None:
                progress(done, len(lengths))
        return answers

    def log_probabilities(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        progress: ProgressCallback | None = None,
    ) -> list[float]:
        """Return the natural log-probability of each target given its source, with eos (perplexity in §6.2).

        Both are tokens without eos. Raises ValueError if a target is longer than a learned position table.
        """

        @torch.inference_mode()
        def find(numbers: Sequence[int]) -> list[float]:
            source_BS = pad_sequences([self.source_tokens(sources[n]) for n in numbers], self.device)
            target_BT = pad_sequences([[BOS, *targets[n], EOS] for n in numbers], self.device)
            log_p_X = [self._log_probabilities(model, source_BS, target_BT).double() for model in self.models]
            mean_X = torch.stack(log_p_X).logsumexp(dim=0) - math.log(len(self.models))
            return mean_X.view(len(numbers), -1).sum(dim=1).tolist()

        lengths = [max(len(source), len(target)) + 1 for source, target in zip(sources, targets, strict=True)]
        return self._in_batches(lengths, self.batch_pieces, find, 0.0, progress)

    def _log_probabilities(self, model: Transformer, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Return the log-probabilities of the tokens after bos as one row (B * (T - 1)), 0 for padding."""
        logits_BTN = model.logits(model(source_BS, target_BT[:, :-1]))
        return -F.cross_entropy(
            logits_BTN.flatten(0, 1), target_BT[:, 1:].flatten(), reduction="none", ignore_index=PAD
        )

    def attention_maps(self, source: Sequence[int], target: Sequence[int], finished: bool = True) -> AttentionMaps:
        """Return the weights of all heads, without the dimension B, for a source and a target without eos.

        Rows of the target are the predicted tokens, with eos if ``finished``; columns are the tokens read, bos first.
        """
        read = [BOS, *target][: max(len(target) + finished, 1)]
        maps = attention_maps(
            self.model, pad_sequences([self.source_tokens(source)], self.device), pad_sequences([read], self.device)
        )
        return AttentionMaps(*(weights[:, 0].float().cpu() for weights in (maps.encoder, maps.decoder, maps.cross)))


def pad_sequences(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Return tokens as one tensor (rows, longest), padded at the end."""
    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows], dtype=torch.int64, device=device)
