"""The decoders that are compared: this engine, Transformers' ``generate`` and CTranslate2.

Each decodes batches of sources by beam search; every output has a given number of tokens.
"""

import importlib.util
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from benchmarks.contestants import marian
from model.config import Decoding, Model
from model.config.special_pieces import EOS, PAD, SPECIAL_TOKENS, UNK
from model.decoding.beam_search import SearchConstraints, beam_search
from model.decoding.cached_decoder import DecoderStarter, decoder_starter
from model.decoding.translator import pad_sequences
from model.network.transformer import Transformer

ALPHA = 0.6
Quantization = Literal["float32", "int8"]


@dataclass(frozen=True)
class Setting:
    """The settings that all decoders share."""

    model: Model
    vocabulary: int
    beam: int
    device: str
    threads: int
    seed: int


@dataclass(frozen=True)
class Work:
    """A batch: source tokens without eos, and the length of each output with eos."""

    sources: list[list[int]]
    lengths: list[int]


class Decoder(ABC):
    """An engine whose decoding speed is measured."""

    name: str
    any_length = False
    """Whether each sentence can have its own length."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.device = torch.device(setting.device)

    @abstractmethod
    def decode(self, work: Work) -> list[int]:
        """Decode a batch and return the length of each output, with eos if one was written."""


class Own(Decoder):
    """This engine's search."""

    name = "own"
    any_length = True

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.start: DecoderStarter = decoder_starter(random_model(setting).to(self.device).eval())

    @torch.inference_mode()
    def decode(self, work: Work) -> list[int]:
        step = self.start(pad_sequences([[*source, EOS] for source in work.sources], self.device))
        constraints = [SearchConstraints(max_length=length, min_length=length) for length in work.lengths]
        decoding = Decoding(beam=self.setting.beam, alpha=ALPHA)
        return [best.length for best, *_ in beam_search(step, constraints, decoding, self.device)]


class Generate(Decoder):
    """Transformers' MarianMTModel with its default cache."""

    name = "transformers"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        torch.manual_seed(setting.seed)
        model: Any = marian(setting.model, setting.vocabulary, use_cache=True)
        self.model = model.to(self.device).eval()

    @torch.inference_mode()
    def decode(self, work: Work) -> list[int]:
        longest = max(map(len, work.sources)) + 1
        rows = [[*source, EOS, *[PAD] * (longest - 1 - len(source))] for source in work.sources]
        source_BS = torch.tensor(rows, device=self.device)
        (length,) = set(work.lengths)
        found = self.model.generate(
            input_ids=source_BS,
            attention_mask=(source_BS != PAD).long(),
            num_beams=self.setting.beam,
            length_penalty=ALPHA,
            min_new_tokens=length,
            max_new_tokens=length,
            do_sample=False,
        )
        return [found.shape[1] - 1] * len(rows)


class CTranslate2(Decoder):
    """CTranslate2 with this engine's weights."""

    name = "ctranslate2"
    quantization: Quantization = "float32"

    def __init__(self, setting: Setting) -> None:
        import ctranslate2

        from model.export.ctranslate2 import write_ctranslate2

        super().__init__(setting)
        self.pieces = [*SPECIAL_TOKENS, *(f"p{i}" for i in range(len(SPECIAL_TOKENS), setting.vocabulary))]
        with tempfile.TemporaryDirectory(prefix="ctranslate2-") as folder:
            write_ctranslate2(random_model(setting), self.pieces, self.pieces, Path(folder), self.quantization)
            self.translator = ctranslate2.Translator(
                folder, device=setting.device, intra_threads=setting.threads, inter_threads=1
            )

    def decode(self, work: Work) -> list[int]:
        (length,) = set(work.lengths)
        found = self.translator.translate_batch(
            [[self.pieces[piece] for piece in source] for source in work.sources],
            beam_size=self.setting.beam,
            length_penalty=ALPHA,
            min_decoding_length=length,
            max_decoding_length=length,
            max_batch_size=0,
        )
        return [len(one.hypotheses[0]) for one in found]


class CTranslate2Int8(CTranslate2):
    """CTranslate2 with 8-bit integer weights."""

    name = "ctranslate2-int8"
    quantization: Quantization = "int8"


PEERS: dict[str, type[Decoder]] = {peer.name: peer for peer in (Generate, CTranslate2, CTranslate2Int8)}


def missing(peer: str) -> str:
    """Return why a peer cannot run, or an empty string."""
    library = "transformers" if peer == Generate.name else "ctranslate2"
    if importlib.util.find_spec(library):
        return ""
    return f"{peer} is left out: pip install {library}"


def random_model(setting: Setting) -> Transformer:
    """Build untrained weights from the seed; their speed is that of trained ones."""
    torch.manual_seed(setting.seed)
    return Transformer(setting.model, setting.vocabulary, setting.vocabulary)


def draw_sources(lengths: Sequence[int], vocabulary: int, seed: int) -> list[list[int]]:
    """Draw random source tokens, as many as each length says."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(UNK + 1, vocabulary, (length,), generator=generator).tolist() for length in lengths]
