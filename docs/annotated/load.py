"""A model that this project trained, in the teaching implementation beside this file.

    model, vocabulary = from_version("demo/1")

The version is of the root that ``REPRO_ROOT`` names, else of the nearest ``.repro``.
"""

import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from torch import Tensor
from transformer import Shape, Transformer

sys.path.append(f"{Path(__file__).resolve().parents[2]}")  # where a program beside this file is run

from flows import api
from model.config.keying import require
from model.data.bpe import TokenizerPair
from model.network.transformer import Transformer as Product

EXPRESSED = ("layers", "d_model", "d_ff", "heads", "d_k", "d_v", "p_drop", "norm")
"""Fields of ``Model`` that the teaching model has too, in the order of ``Shape``."""
OF_NO_EFFECT = ("init", "attention", "max_positions")
"""Fields that change no output of a model with sines and cosines, given its weights."""
NAMES = {
    "target_embedding": "E",
    "attention": "self_attention",
    "cross": "cross_attention",
    "around_attention": "around_self_attention",
    "around_cross": "around_cross_attention",
    "query": "W_Q",
    "out": "W_O",
    "inner": "W_1",
    "outer": "W_2",
}
"""The product's names of modules and the paper's, where they differ."""
JOINED = {"query_keys_values": ("W_Q", "W_K", "W_V"), "keys_values": ("W_K", "W_V")}
"""Matrices that the product keeps as one, so that one product computes them all."""


def from_version(name: str = "demo/1") -> tuple[Transformer, TokenizerPair]:
    """The teaching model with the weights of a registered version, ready to translate, and its vocabulary.

    Raises BadConfiguration for an unknown version, ValueError for one with a setting that the paper does not have.
    """
    translator = api.load(name).translator
    return from_product(translator.model), translator.vocabulary


def from_product(trained: Product) -> Transformer:
    """The teaching model with the weights of a model of ``model/network/transformer.py``."""
    config = trained.config
    for field in fields(config):
        if field.name not in EXPRESSED + OF_NO_EFFECT:
            value = getattr(config, field.name)
            require(value == field.default, f"model.{field.name}", value, f"{field.default!r} on the page")
    shape = Shape(*(getattr(config, name) for name in EXPRESSED))
    model = Transformer(trained.target_size, shape).to(trained.target_embedding.dtype)
    model.load_state_dict(renamed(trained.state_dict(), shape))
    return model.eval()


def renamed(tensors: Mapping[str, Tensor], shape: Shape) -> dict[str, Tensor]:
    """Weights or gradients of the product by the names of the teaching model."""
    width = {"W_Q": shape.h * shape.d_k, "W_K": shape.h * shape.d_k, "W_V": shape.h * shape.d_v}
    found = {}
    for name, tensor in tensors.items():
        path = [NAMES.get(each, each) for each in name.split(".")]
        if len(path) > 1 and path[-2].endswith("norm") and path[-1] == "weight":
            path[-1] = "gain"
        parts = JOINED.get(path[-2], ()) if len(path) > 1 else ()
        if not parts:
            found[".".join(path)] = tensor
            continue
        for part, rows in zip(parts, tensor.split([width[each] for each in parts]), strict=True):
            found[".".join([*path[:-2], part, path[-1]])] = rows
    return found
