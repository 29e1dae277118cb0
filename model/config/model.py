"""The Transformer's shape, and what follows from it alone."""

from dataclasses import dataclass
from typing import Literal

from .keying import require, require_choices, unkeyed_default

SourceEnds = Literal["eos", "none", "bos+eos"]
"""The special tokens around a source."""

LARGEST_SIZES = {
    "layers": 1_000,
    "d_model": 100_000,
    "d_ff": 1_000_000,
    "heads": 1_000,
    "d_k": 10_000,
    "d_v": 10_000,
    "max_positions": 1_000_000,
}
"""Sizes far beyond any trained Transformer. A larger one is a typing error that would end as one of memory."""


@dataclass(frozen=True)
class Model:
    """The Transformer's shape (§3). Defaults are the paper's base model (Table 3, row base)."""

    layers: int = 6
    """Layers of the encoder, and of the decoder unless ``decoder_layers`` says otherwise (§3.1, N in Table 3)."""
    d_model: int = 512
    """Width of embeddings and of every sublayer's output (§3.1); an even number."""
    d_ff: int = 2048
    """Inner width of the feed-forward networks (§3.3)."""
    heads: int = 8
    """Attention heads of each layer (§3.2.2, h in Table 3)."""
    d_k: int = 64
    """Width of a head's queries and keys (§3.2.2)."""
    d_v: int = 64
    """Width of a head's values (§3.2.2)."""
    p_drop: float = 0.1
    """Probability of dropout on every sublayer's output and on the sums of embeddings and positions (§5.4)."""
    p_drop_attention: float = 0.0
    """Probability of dropout on attention weights, which the paper does not have."""
    p_drop_relu: float = 0.0
    """Probability of dropout after the feed-forward networks' ReLU, which the paper does not have."""
    norm: Literal["post", "pre"] = "post"
    """post: LayerNorm(x + Sublayer(x)) (§3.1); pre: x + Sublayer(LayerNorm(x)), with a norm at each stack's end."""
    positions: Literal["sinusoid", "learned", "learned_sinusoid"] = "sinusoid"
    """sinusoid: sines and cosines (§3.5); learned: a table of parameters (Table 3, row E); learned_sinusoid: a learned
    table that starts as the sinusoids."""
    max_positions: int = 1024
    """Rows of a learned table of positions: the most tokens of a sentence. Sinusoids have no limit."""
    tied: bool = True
    """One matrix for source and target embeddings and the output projection (§3.4); it needs a joint vocabulary."""
    init: Literal["glorot", "normal"] = "glorot"
    """glorot: Glorot-uniform matrices, embeddings N(0, 1/d_model); normal: all matrices from N(0, 1/d_model)."""
    attention: Literal["own", "torch"] = unkeyed_default("own")
    """own: this project's layers; torch: those of torch.nn.Transformer, as a reference."""
    qkv_bias: bool = unkeyed_default(False)
    """Biases of W^Q, W^K and W^V, which the paper does not have."""
    output_bias: bool = unkeyed_default(False)
    """A bias of the projection before the softmax, which the paper does not have."""
    decoder_layers: int = unkeyed_default(0)
    """Layers of the decoder; 0: as many as of the encoder, as in the paper."""
    scale_embeddings: bool = unkeyed_default(True)
    """Embeddings are multiplied by sqrt(d_model) (§3.4). false: they are used as they are; those that are not shared
    with the output projection then start from N(0, 1)."""
    source_ends: SourceEnds = unkeyed_default("eos")  # noqa: RUF009 - a string
    """Special tokens around a source; an empty source is read as eos alone. A decoder always reads bos … and predicts
    … eos."""

    def __post_init__(self) -> None:
        require_choices(self, "model")
        for name, largest in LARGEST_SIZES.items():
            size = getattr(self, name)
            require(1 <= size <= largest, f"model.{name}", size, f"a whole number from 1 to {largest:,}")
        most = LARGEST_SIZES["layers"]
        require(0 <= self.decoder_layers <= most, "model.decoder_layers", self.decoder_layers, f"0 to {most:,}")
        require(self.d_model % 2 == 0, "model.d_model", self.d_model, "an even number (sines and cosines, §3.5)")
        for name in ("p_drop", "p_drop_attention", "p_drop_relu"):
            require(0 <= getattr(self, name) < 1, f"model.{name}", getattr(self, name), "0 up to, not including, 1")
        if self.attention == "torch":
            for name in ("d_k", "d_v"):
                width = getattr(self, name)
                fits = self.heads * width == self.d_model
                require(fits, f"model.{name}", width, "model.d_model / model.heads where model.attention is torch")

    @property
    def layers_of_decoder(self) -> int:
        """The number of the decoder's layers."""
        return self.decoder_layers or self.layers

    @property
    def learns_positions(self) -> bool:
        """Whether positions are parameters, of which there are ``max_positions``."""
        return self.positions != "sinusoid"


def count_parameters(model: Model, source_size: int, target_size: int) -> int:
    """Number of parameters for these vocabulary sizes; if ``model.tied``, both sides share one vocabulary."""
    attention = model.heads * model.d_model * (2 * model.d_k + 2 * model.d_v) + model.d_model
    attention += model.heads * (2 * model.d_k + model.d_v) * model.qkv_bias
    feed_forward = 2 * model.d_model * model.d_ff + model.d_ff + model.d_model
    norm = 2 * model.d_model
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    layers = model.layers * encoder + model.layers_of_decoder * decoder
    matrices = target_size if model.tied else source_size + 2 * target_size
    tables = 2 * model.max_positions if model.learns_positions else 0
    last = 2 * norm if model.norm == "pre" else 0
    biases = target_size * model.output_bias
    return layers + (matrices + tables) * model.d_model + last + biases


def supports_varlen_attention(model: Model) -> bool:
    """Whether the GPU kernel for packed batches supports these head sizes."""
    return model.d_k == model.d_v and model.d_k % 8 == 0 and model.d_k <= 256
