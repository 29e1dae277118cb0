"""The Transformer's shape, and what is computed from the shape alone."""

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
"""Sizes far above those of any trained Transformer. A larger size is a typing error; it would exhaust the memory."""


@dataclass(frozen=True)
class Model:
    """The Transformer's shape (§3). Defaults are the paper's base model (Table 3, row base)."""

    layers: int = 6
    """Layers of the encoder, and of the decoder unless ``decoder_layers`` is above 0 (§3.1, N in Table 3)."""
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
    """Probability of dropout on attention weights; not in the paper."""
    p_drop_relu: float = 0.0
    """Probability of dropout after the feed-forward networks' ReLU; not in the paper."""
    norm: Literal["post", "pre"] = "post"
    """post: LayerNorm(x + Sublayer(x)) (§3.1); pre: x + Sublayer(LayerNorm(x)), and a norm at the end of each stack."""
    positions: Literal["sinusoid", "learned", "learned_sinusoid"] = "sinusoid"
    """sinusoid: sines and cosines (§3.5); learned: a table of parameters (Table 3, row E); learned_sinusoid: a learned
    table that starts as the sinusoids."""
    max_positions: int = 1024
    """Rows of a learned table of positions: the maximum tokens of a sentence. Sinusoids have no limit."""
    tied: bool = True
    """One matrix for source embeddings, target embeddings and output projection (§3.4); needs a joint vocabulary."""
    init: Literal["glorot", "normal"] = "glorot"
    """glorot: Glorot-uniform matrices, embeddings N(0, 1/d_model); normal: all matrices from N(0, 1/d_model)."""
    attention: Literal["own", "torch"] = unkeyed_default("own")
    """own: this project's layers; torch: the layers of torch.nn.Transformer, as a reference."""
    qkv_bias: bool = unkeyed_default(False)
    """Biases of W^Q, W^K and W^V; not in the paper."""
    output_bias: bool = unkeyed_default(False)
    """A bias of the projection before the softmax; not in the paper."""
    decoder_layers: int = unkeyed_default(0)
    """Layers of the decoder; 0: the same number as the encoder, as in the paper."""
    scale_embeddings: bool = unkeyed_default(True)
    """true: embeddings are multiplied by sqrt(d_model) (§3.4). false: they are not multiplied; embeddings that do not
    share their matrix with the output projection then start from N(0, 1)."""
    source_ends: SourceEnds = unkeyed_default("eos")  # noqa: RUF009 - a string
    """Special tokens around a source; the model reads an empty source as one eos. The decoder always reads bos … and
    predicts … eos."""

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
        """The number of layers of the decoder."""
        return self.decoder_layers or self.layers

    @property
    def learns_positions(self) -> bool:
        """Whether positions are parameters: a table of ``max_positions`` rows."""
        return self.positions != "sinusoid"


def count_parameters(model: Model, source_size: int, target_size: int) -> int:
    """Return the number of parameters for these vocabulary sizes; with ``model.tied``, both sides share one."""
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
