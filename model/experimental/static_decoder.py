"""Steps of a search over tensors of constant shapes and addresses, which a GPU replays as one CUDA graph each.

Never run on a GPU. A translation takes them with ``REPRO_SEARCH_GRAPHS=1``.

A GPU then gets one call for a step's operations in place of a hundred. A step is made for a ``Bucket``; what a search
does not fill of it is computed for nothing. So it is for few sentences, which a GPU has done before the next call
arrives: while more are live, and for the first step, which has one row a sentence, the decoder is the cached one.

Shape suffixes are those of ``cached_decoder``; here R, B, S and P are those of a bucket.
"""

import threading
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..decoding import cached_decoder
from ..decoding.beam_search import IncrementalDecoder
from ..decoding.cached_decoder import CachedDecoder, DecoderStarter, LayerPast
from ..network.attention import KeysValues, PaddedMask
from .cuda_graph import Work, record_cuda_graph

MOST_SENTENCES = 64
"""Live sentences above which no graph is used: a gain is expected below about 150, by a count of its launches."""
MOST_STEPS = 16
"""Steps that are kept for the next searches of a model, each with caches of its own."""


class Bucket(NamedTuple):
    """The shape of a step: sentences, rows of each, source positions, target positions."""

    sentences: int
    width: int
    source: int
    positions: int


class StaticSteps:
    """A ``DecoderStarter`` whose decoders use recorded steps, which are kept for all searches of a model."""

    def __init__(self, start: DecoderStarter) -> None:
        self.start = start
        self.steps: list[StaticStep] = []
        self.lock = threading.Lock()

    def __call__(self, source_BS: Tensor, record_attention: bool = False) -> IncrementalDecoder:
        """With ``record_attention``, and for torch's layers, the decoder of ``start``."""
        cached = self.start(source_BS, record_attention)
        if record_attention or not isinstance(cached, CachedDecoder):
            return cached
        return StaticDecoder(cached, self)

    def take(self, bucket: Bucket, decoder: "StaticDecoder") -> "StaticStep":
        """A step of this shape that no other decoder uses."""
        with self.lock:
            free = [step for step in self.steps if step.user() is None]
            step = next((step for step in free if step.bucket == bucket), None) or StaticStep(decoder.cached, bucket)
            others = [each for each in self.steps if each is not step]
            dropped = [each for each in free if each is not step][: max(0, len(others) + 1 - MOST_STEPS)]
            self.steps = [*(each for each in others if each not in dropped), step]
            step.user = weakref.ref(decoder)
        return step


class StaticStep:
    """A step of every row of a bucket: ``replay`` reads and writes only tensors that stay."""

    def __init__(self, cached: CachedDecoder, bucket: Bucket) -> None:
        """``cached`` is any decoder of the model."""
        self.bucket = bucket
        self.weights = cached.weights
        self.table = cached.model.target_positions.table  # the model may extend its own
        rows = bucket.sentences * bucket.width
        device = self.table.device
        self.past, self.layers = cached.past.new_buffer(bucket.positions, rows)
        self.memory, memories = cached.past.new_buffer(bucket.source, bucket.sentences)
        # Masked values count nothing, unless they are not numbers.
        self.past.zero_()
        self.memory.zero_()
        self.memories = [(memory.keys, memory.values) for memory in memories]
        self.source_B11S = torch.ones(bucket.sentences, 1, 1, bucket.source, dtype=torch.bool, device=device)
        self.numbers_R, self.places_P = (torch.arange(size, device=device) for size in (rows, bucket.positions))
        self.pieces_R = torch.zeros_like(self.numbers_R)
        self.rows_R = self.numbers_R.clone()
        self.position_1 = torch.zeros(1, dtype=torch.int64, device=device)
        self.user: weakref.ref[StaticDecoder] | Any = lambda: None
        """The decoder whose state this holds, or None."""
        self.replay = recorded(self.run, device)

    def run(self) -> None:
        """Continue the rows ``rows_R`` with ``pieces_R``; the result is ``logits_RN``."""
        self.logits_RN = self.logits()

    def logits(self) -> Tensor:
        model = self.weights.model
        weights = self.weights
        self.past.copy_(self.past.index_select(1, self.rows_R))
        position_1D = self.table.index_select(0, self.position_1)
        x_RD = F.embedding(self.pieces_R, model.target_embedding) * weights.scale + position_1D
        written = PaddedMask((self.places_P <= self.position_1)[None, None, None])
        source = PaddedMask(self.source_B11S)
        for layer, part, memory in zip(weights.layers, self.layers, self.memories, strict=True):
            x_RD = layer.step(x_RD, StaticPast(part, written), self.position_1, memory, source, None)
        self.position_1 += 1
        return weights.project(weights.norm(x_RD))

    def load(
        self, past_TRLX: Tensor, memories: Sequence[KeysValues], source_B11S: Tensor | None, shape: tuple[int, int]
    ) -> None:
        """Take over a state; ``shape`` are its sentences and source positions."""
        sentences, source = shape
        self.past[: len(past_TRLX), : past_TRLX.shape[1]].copy_(past_TRLX)
        for mine, theirs in zip(self.memories, memories, strict=True):
            for x, y in zip(mine, theirs, strict=True):
                x[:sentences, :, :source].copy_(y[:sentences, :, :source])
        self.source_B11S[:sentences] = False
        self.source_B11S[:sentences, ..., :source] = (
            True if source_B11S is None else source_B11S[:sentences, ..., :source]
        )
        self.position_1.fill_(len(past_TRLX))

    def keep_sentences(self, sentences_B: Tensor) -> None:
        """Move these sentences to the front."""
        kept = len(sentences_B)
        self.memory[:, :kept] = self.memory.index_select(1, sentences_B)
        self.source_B11S[:kept] = self.source_B11S.index_select(0, sentences_B)


class StaticPast(NamedTuple):
    """A ``Past`` that reads all positions, of which those ``written`` are visible, and whose position is a tensor."""

    part: LayerPast
    written: PaddedMask

    def append(self, values_RX: Tensor, position: Tensor) -> tuple[Tensor, Tensor, PaddedMask]:
        self.part.written.index_copy_(0, position, values_RX[None])
        return self.part.keys, self.part.values, self.written


class StaticDecoder:
    """An ``IncrementalDecoder`` that leaves the cached one for recorded steps. Logits are valid until the next step."""

    def __init__(self, cached: CachedDecoder, steps: StaticSteps) -> None:
        self.cached = cached
        self.steps = steps
        self.step: StaticStep | None = None
        self.length = 0
        """Positions so far."""
        keys_BHSK = cached.memories[0][0]
        self.sentences = keys_BHSK.shape[0]
        self.source = keys_BHSK.shape[2]
        self.reordered_R: Tensor | None = None

    def advance(self, pieces_R: Tensor) -> Tensor:
        rows = len(pieces_R)
        if not self.length or (self.step is None and self.sentences > MOST_SENTENCES):
            self.length += 1
            return self.cached.advance(pieces_R)
        bucket = self._bucket(rows)
        if self.step is None or self.step.bucket != bucket:
            self._move(bucket)
        assert self.step
        self.step.pieces_R[:rows] = pieces_R
        self.step.rows_R[:rows] = self.step.numbers_R[:rows] if self.reordered_R is None else self.reordered_R
        self.reordered_R = None
        self.length += 1
        self.step.replay()
        return self.step.logits_RN[:rows]

    def reorder(self, rows_R: Tensor) -> None:
        if self.step is None:
            self.cached.reorder(rows_R)
        else:
            self.reordered_R = rows_R if self.reordered_R is None else self.reordered_R[rows_R]

    def keep_sentences(self, sentences_B: Tensor) -> None:
        self.sentences = len(sentences_B)
        (self.step or self.cached).keep_sentences(sentences_B)

    def attention(self) -> Tensor:
        raise AssertionError("attention is recorded by the cached decoder alone")

    def _bucket(self, rows: int) -> Bucket:
        """The least bucket for the next position. Raises ValueError past the end of a learned position table."""
        table = self.cached.model.target_positions
        table.ensure_length(self.length + 1)
        least = cached_decoder.MIN_POSITIONS
        positions = power_of_two(self.length + 1, least)
        if table.learned:
            positions = min(positions, len(table.table))
        table.ensure_length(positions)
        width = rows // self.sentences
        return Bucket(power_of_two(self.sentences), width, power_of_two(self.source, least), positions)

    def _move(self, bucket: Bucket) -> None:
        """Take the state to a step of another shape."""
        step = self.steps.take(bucket, self)
        old = self.step
        shape = (self.sentences, self.source)
        if old is None:
            cached = self.cached
            step.load(cached.past.buffer[: self.length], cached.memories, cached.cross_mask.mask, shape)
        else:
            past_TRLX = old.past[: self.length]
            if self.reordered_R is not None:
                past_TRLX = past_TRLX.index_select(1, self.reordered_R)
                self.reordered_R = None
            rows = shape[0] * bucket.width
            step.load(past_TRLX[:, :rows], old.memories, old.source_B11S, shape)
            old.user = lambda: None
        self.step = step


def recorded(work: Work, device: torch.device) -> Work:
    """The work itself, or on a GPU its CUDA graph; the work must be done once before it is recorded."""
    if device.type != "cuda":
        return work
    work()
    return record_cuda_graph(work)


def power_of_two(number: int, least: int = 1) -> int:
    """The least power of two that is neither below ``number`` nor ``least``, itself one."""
    return max(least, 1 << (number - 1).bit_length())
