"""Random models of every shape, with vocabularies to speak: what an export is checked with."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pyarrow as pa
import torch
from small_text import train_tokenizer

from model.config import Decoding, Model
from model.config.special_pieces import BOS, EOS, PAD, UNK
from model.data.bpe import TokenizerPair
from model.decoding.translation import Hypothesis
from model.decoding.translator import Translator
from model.network.transformer import Transformer
from model.network.weights import build, save_model
from tasks.stages.learn_bpe import Vocabulary

LINES = [
    "Two dogs run.",
    "",
    "A dog",
    "The men don't run over the green meadow again.",
    "   ",
    "It's </s> 2014, isn't it?",
]
SIZES = (290, 300)
"""Of the source's vocabulary, and of the target's where it has its own."""
SMALL = Model(layers=2, d_model=32, d_ff=48, heads=4, d_k=8, d_v=8, max_positions=64)
SHAPES = [
    replace(SMALL, norm=norm, positions=positions, tied=tied)
    for norm, positions, tied in product(("post", "pre"), ("sinusoid", "learned"), (True, False))
] + [
    replace(SMALL, norm="pre", qkv_bias=True),
    replace(SMALL, decoder_layers=1, scale_embeddings=False, output_bias=True),
]


ENDS = [replace(SHAPES[0], source_ends="none"), replace(SHAPES[3], source_ends="bos+eos")]
"""Sources without special tokens, and with both."""


def name_of(config: Model) -> str:
    biased = "-biased" * config.qkv_bias
    biased += "-unscaled" * (not config.scale_embeddings)
    ends = "" if config.source_ends == "eos" else f"-{config.source_ends}"
    return f"{config.norm}-{config.positions}-{'one' if config.tied else 'two'}-{config.d_k}-{config.d_v}{biased}{ends}"


def write_model(folder: Path, config: Model, target_size: int = SIZES[1], gain: float = 4) -> tuple[Path, Path]:
    """Folders of weights and of a vocabulary (one if tied).

    Biases and norms are what no initialisation makes them; bos and padding are never likely, as after any training.
    """
    vocabulary, weights = folder / "vocabulary", folder / "weights"
    for part in (vocabulary, weights):
        part.mkdir()
    sizes = (SIZES[0], SIZES[0] if config.tied else target_size)
    names = ("tokenizer.json", "tokenizer.target.json")[: 1 if config.tied else 2]
    for name, size in zip(names, sizes, strict=False):
        lines = pa.array([*LINES * 3, *["green meadow and men"] * size])
        train_tokenizer([lines], Vocabulary(size=size, min_frequency=1)).save(str(vocabulary / name))
    torch.manual_seed(3)  # the draw must not depend on the tests that ran before
    save_model(weights, restless(build(config, *sizes).eval(), TokenizerPair.load(vocabulary), gain))
    return weights, vocabulary


@torch.no_grad()
def restless(model: Transformer, vocabulary: TokenizerPair, gain: float) -> Transformer:
    """Fill a model so that what it writes depends much on what it reads, and a third of its outputs end in time.

    A great ``gain`` of the matrices makes outputs various, and rounding count.
    """
    torch.manual_seed(3)
    for stack in (model.encoder, model.decoder, model.encoder_norm, model.decoder_norm):
        for parameter in stack.parameters():  # type: ignore[union-attr]
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) / 3)
            else:
                parameter.mul_(gain)
    last = model.decoder_norm if model.config.norm == "pre" else model.decoder[-1].around_feed_forward.norm
    always_D = torch.nn.functional.normalize(torch.randn(model.config.d_model), dim=0)
    last.bias.copy_(8 * always_D)  # type: ignore[union-attr, operator]
    model.output_ND[[PAD, BOS]] -= 4 * always_D
    if model.output_bias_N is not None:
        model.output_bias_N.copy_(torch.randn_like(model.output_bias_N) / 3)
    translator = Translator(model, vocabulary, torch.device("cpu"))
    while sum(hypothesis.finished for hypothesis in translator.search(sources(24), Decoding(beam=3, max_extra=12))) < 8:
        model.output_ND[EOS] += 0.05 * always_D
    return model


def sources(count: int, longest: int = 12) -> list[list[int]]:
    """Random pieces of the source's vocabulary."""
    draw = random.Random(5)
    return [[draw.randrange(UNK + 1, SIZES[0]) for _ in range(draw.randint(1, longest))] for _ in range(count)]


def translated(translator: Translator, lines: Sequence[str], decoding: Decoding) -> list[Hypothesis]:
    """Translate lines of one sentence each by the own search."""
    found = translator.search(translator.vocabulary.encode_source(translator.vocabulary.read(lines)), decoding)
    return [replace(each, text=translator.text(each)) for each in found]
