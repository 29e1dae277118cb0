"""Configuration of model, training, averaging and decoding as frozen dataclasses, without torch.

Orchestration reads them as values; a job receives them as JSON and rebuilds them with ``from_json``. The symbols are
the paper's (Table 3). This package imports no other sub-package.
"""

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar

from .keying import require, require_choices, unkeyed, unkeyed_default
from .mixture import parse_mixture

Config = TypeVar("Config")
SourceEnds = Literal["eos", "none", "bos+eos"]
"""The special tokens around a source."""
Numerics = Literal["fast", "strict"]
"""fast: the kernels that suit the machine; strict: the same bits on different CPUs, several times slower."""
STRICT_ENVIRONMENT = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""What strict numerics (docs/reproducibility.md) needs: torch's kernels without vector instructions, and the code path
of MKL that computes the same on every x86 CPU. Both libraries read their variable once, so a job must have them when it
starts."""

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


@dataclass(frozen=True)
class Training:
    """Training (§5). Defaults are the paper's base run on WMT14 En-De."""

    updates: int = 100_000
    """Optimizer steps (§5.2)."""
    batch_tokens: int = 25_000
    """Maximum pieces of an update per side, including bos or eos, summed over all ranks (§5.1)."""
    label_smoothing: float = 0.1
    """Probability that smoothing spreads over the vocabulary (§5.4); 0: none."""
    schedule: Literal["paper", "inverse_sqrt", "linear", "constant"] = "paper"
    """paper: factor * d_model^-0.5 * min(update^-0.5, update * warmup^-1.5) (§5.3); inverse_sqrt, linear, constant
    rise linearly to ``peak`` over ``warmup`` updates."""
    warmup: int = 4_000
    """Updates over which the learning rate rises (§5.3)."""
    factor: float = 1.0
    """Factor of the schedule ``paper``."""
    peak: float = 1e-3
    """Highest learning rate of the schedules other than ``paper``."""
    beta1: float = 0.9
    """Adam's decay of the mean of gradients (§5.3)."""
    beta2: float = 0.98
    """Adam's decay of the mean of their squares (§5.3)."""
    eps: float = 1e-9
    """What Adam adds to the root of the mean of squares (§5.3)."""
    clip_norm: float = 0.0
    """Maximum gradient norm; 0 disables clipping, as in the paper."""
    seed: int = 1
    """Seed of initial weights, dropout, and the order of batches."""
    precision: Literal["fp32", "tf32", "bf16"] = "fp32"
    """Numbers of matrix products; weights, moments, norms and softmax are float32 in any case. tf32 needs a GPU."""
    residual: Literal["fp32", "bf16"] = unkeyed_default("fp32")
    """Numbers that pass from sublayer to sublayer. bf16 needs ``precision`` bf16 and moves half the bytes; norms,
    softmax, loss and the gradients of weights stay float32."""
    checkpoint_every: int = 1_500
    """Updates between two checkpoints; the paper's 10 minutes at 0.4 s an update (§5.2, §6.1)."""
    keep: int = 5
    """Number of last checkpoints to keep for averaging."""
    dev_every: int = 1_500
    """Updates between two computations of the dev perplexity."""
    batch_sentences: int = unkeyed_default(0)
    """Maximum pairs of an update, in place of ``batch_tokens``, which then limits nothing; 0: counted in tokens."""
    epochs: int = unkeyed_default(0)
    """Length in epochs in place of updates: above 0, ``updates`` must be 0."""
    checkpoints_from: Literal["start", "end"] = unkeyed_default("start")
    """start: checkpoints at multiples of ``checkpoint_every``, and at the last update; end: at the last update and at
    steps of ``checkpoint_every`` before it, so that those averaged are equally far apart."""
    batching: Literal["buckets", "packed"] = unkeyed_default("buckets")
    """buckets: pairs of similar length, padded; packed: pairs of any length end to end, in batches of one size."""
    optimizer: Literal["adam", "adamw"] = unkeyed_default("adam")
    """adam: the paper's (§5.3); adamw: with ``weight_decay`` apart from the gradient."""
    weight_decay: float = unkeyed_default(0.0)
    """AdamW's weight decay of matrices and embeddings; biases and norms have none."""
    attention_coverage_encoder: float = unkeyed_default(0.0)
    """Weight of the attention-coverage loss (``model.training.coverage``) of the encoder's self-attention."""
    attention_coverage_cross: float = unkeyed_default(0.0)
    """Weight of the attention-coverage loss of the cross-attention."""
    r_drop: float = unkeyed_default(0.0)
    """Weight of the divergence between two passes of each batch with different dropout (R-Drop, whose authors take 5
    for translation); an update then takes about 2.4 times as long. 0: one pass."""
    skip_nonfinite: int = unkeyed_default(0)
    """Maximum number of skipped updates with a gradient that is not finite; one more ends training as diverged."""
    patience: int = unkeyed_default(0)
    """Stop after this many consecutive dev checks without a lower perplexity; 0 trains to the last update."""
    ema: float = unkeyed_default(0.0)
    """Decay per update of an exponential moving average of the weights, such as 0.999; 0 keeps none. It is used where
    averaging.which is ema; dev checks use the weights themselves."""
    mixture: str = unkeyed_default("")
    """Shares of the corpus's parts in each epoch, also in stages (``model.config.mixture``):
    ``europarl=3,news-commentary=1``, ``temperature=5``, ``europarl=1; 8000: news-commentary=1``. Empty: every pair once
    in each epoch."""
    dev_bleu: int = unkeyed_default(0)
    """Number of dev sentences to decode greedily at each dev check for a BLEU; 0 decodes none. One rank decodes for at
    most a minute while the others wait."""
    start: str = unkeyed("")
    """A registered version (``name@alias``, ``name/number``) with the initial weights. The key depends on the weights,
    not on this name. Empty: random initialisation."""
    numerics: Numerics = unkeyed_default("fast")  # noqa: RUF009 - a string
    """fast: the kernels that suit the machine; strict: weights that are equal to the bit on different CPUs and for
    different numbers of ranks (docs/reproducibility.md), several times slower."""

    def __post_init__(self) -> None:
        require_choices(self, "training")
        for name in ("batch_tokens", "warmup", "checkpoint_every", "keep", "dev_every"):
            require(getattr(self, name) >= 1, f"training.{name}", getattr(self, name), "a whole number of at least 1")
        for name in ("batch_sentences", "epochs", "skip_nonfinite", "patience", "dev_bleu"):
            value = getattr(self, name)
            require(value >= 0, f"training.{name}", value, "0 (off) or a whole number above")
        for name in ("clip_norm", "attention_coverage_encoder", "attention_coverage_cross", "r_drop"):
            require(getattr(self, name) >= 0, f"training.{name}", getattr(self, name), "0 (off) or a number above")
        for name in ("label_smoothing", "beta1", "beta2", "ema"):
            require(0 <= getattr(self, name) < 1, f"training.{name}", getattr(self, name), "0 up to, not including, 1")
        for name in ("factor", "peak", "eps"):
            require(getattr(self, name) > 0, f"training.{name}", getattr(self, name), "a number above 0")
        sentences = self.batch_sentences
        padded = self.batching == "buckets" or not sentences
        require(padded, "training.batch_sentences", sentences, "0 where training.batching is packed")
        if self.epochs:
            require(self.updates == 0, "training.updates", self.updates, "0 where training.epochs is above 0")
        else:
            require(self.updates >= 1, "training.updates", self.updates, "a whole number of at least 1")
        require(0 <= self.seed < 2**31, "training.seed", self.seed, f"a whole number from 0 to {2**31 - 1:,}")
        residuals = ("fp32", "bf16") if self.precision == "bf16" else ("fp32",)
        needed = " or bf16" if self.precision == "bf16" else " where training.precision is not bf16"
        require(self.residual in residuals, "training.residual", self.residual, f"fp32{needed}")
        require(self.weight_decay >= 0, "training.weight_decay", self.weight_decay, "0 or above")
        decays = self.optimizer == "adamw" or not self.weight_decay
        require(decays, "training.weight_decay", self.weight_decay, "0, or training.optimizer adamw")
        counted = self.checkpoints_from == "start" or not self.patience
        require(counted, "training.checkpoints_from", self.checkpoints_from, "start where training.patience is above 0")
        for stage in parse_mixture(self.mixture):
            allowed = f"stages that begin before training.updates, which is {self.updates}"
            in_time = self.epochs > 0 or stage.begin < self.updates
            require(in_time, "training.mixture", self.mixture, allowed)
        exact = self.numerics == "fast" or self.precision == "fp32"
        require(exact, "training.precision", self.precision, "fp32 where training.numerics is strict")


@dataclass(frozen=True)
class Averaging:
    """Checkpoint averaging (§6.1: the last 5 for base, 20 for big; Table 3 uses 1)."""

    count: int = 5
    """Checkpoints whose weights are averaged; at most ``training.keep``, and 1 unless ``which`` is last."""
    which: Literal["last", "best", "ema"] = unkeyed_default("last")
    """last: the last ``count``; best: the one with the lowest dev perplexity (needs training.patience above 0);
    ema: the moving average at the last update (needs training.ema above 0)."""

    def __post_init__(self) -> None:
        require_choices(self, "averaging")
        require(self.count >= 1, "averaging.count", self.count, "a whole number of at least 1")
        alone = self.which == "last" or self.count == 1
        require(alone, "averaging.count", self.count, f"1 where averaging.which is {self.which}")


@dataclass(frozen=True)
class Decoding:
    """Beam search (§6.1)."""

    beam: int = 4
    """Hypotheses that the search keeps at each step."""
    alpha: float = 0.6
    """Length penalty ((5 + length) / 6) ** alpha."""
    max_extra: int = 50
    """Maximum output length: the input length plus this many pieces."""
    max_ratio: float = unkeyed_default(0.0)
    """Maximum output length per input piece, including eos, if that is less than by ``max_extra``; 0: no limit."""
    min_length: int = unkeyed_default(0)
    """Minimum output length in pieces, without eos."""
    min_ratio: float = unkeyed_default(0.0)
    """Minimum output length per input piece, including eos."""
    beta: float = unkeyed_default(0.0)
    """Weight of GNMT's coverage penalty on the cross-attention, averaged over layers and heads; 0: no penalty."""
    ensemble: tuple[int, ...] = unkeyed(())
    """Seeds, with ``training.seed`` among them: the run also trains a model with each, scores each, and scores their
    ensemble. Keys depend on the weights, not on this list. Empty: the run's own model alone."""
    numerics: Numerics = unkeyed_default("fast")  # noqa: RUF009 - a string
    """strict: translations of evaluation sets that are equal to the bit on different CPUs, several times slower."""
    precision: Literal["fp32", "tf32", "bf16"] = unkeyed_default("fp32")
    """Numbers of the matrix products that translate evaluation sets and text for training. tf32 needs a GPU; bf16 also
    keeps keys and values so, while norms, softmax, logits and scores are float32. Other searches use float32."""

    def __post_init__(self) -> None:
        require_choices(self, "decoding")
        require(1 <= self.beam <= 1_000, "decoding.beam", self.beam, "a whole number from 1 to 1,000")
        require(self.alpha >= 0, "decoding.alpha", self.alpha, "0 or above")
        require(self.max_extra >= 1, "decoding.max_extra", self.max_extra, "a whole number of at least 1")
        for name in ("max_ratio", "min_length", "min_ratio", "beta"):
            require(getattr(self, name) >= 0, f"decoding.{name}", getattr(self, name), "0 (off) or above")
        exact = self.numerics == "fast" or self.precision == "fp32"
        require(exact, "decoding.precision", self.precision, "fp32 where decoding.numerics is strict")
        seeds = self.ensemble
        several = not seeds or len(set(seeds)) == len(seeds) > 1
        allowed = "nothing, or two or more different whole numbers, as in 1,2,3"
        require(several and all(0 <= seed < 2**31 for seed in seeds), "decoding.ensemble", seeds, allowed)
        longer = not self.max_ratio or self.min_ratio <= self.max_ratio
        require(longer, "decoding.min_ratio", self.min_ratio, f"at most decoding.max_ratio, which is {self.max_ratio}")

    def search(self) -> dict[str, Any]:
        """All fields but ``ensemble``: the settings of a search, whichever models it asks."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "ensemble"}

    @property
    def most_hypotheses(self) -> int:
        """The most hypotheses that a search can finish: it ends when ``beam`` have, and up to ``beam`` of them do so in
        its last step."""
        return 2 * self.beam - 1

    def check_n_best(self, n_best: int) -> None:
        """Raise ValueError if no search can find so many hypotheses."""
        allowed = f"1 to {self.most_hypotheses}, the most that can finish with decoding.beam {self.beam}"
        require(1 <= n_best <= self.most_hypotheses, "n_best", n_best, allowed)

    def lengths(self, source: int) -> tuple[int, int]:
        """Minimum and maximum output length for a source of this length; all lengths include eos.

        A source's length counts one eos, whatever ``Model.source_ends`` is."""
        most = source - 1 + self.max_extra
        if self.max_ratio:
            most = min(most, max(1, math.floor(self.max_ratio * source)))
        least = max(1 + self.min_length, math.ceil(self.min_ratio * source))
        return min(least, most), most


@dataclass(frozen=True)
class Sampling:
    """Sampling of pieces by their probabilities instead of beam search."""

    temperature: float = 1.0
    """Divides the logits: below 1 sharpens the distribution."""
    top_k: int = 0
    """Sample from this many most likely pieces only; 0: from all."""
    top_p: float = 1.0
    """Sample from the most likely pieces that together reach this probability only."""
    seed: int = 1
    """A sentence's random numbers depend on this seed and on the sentence's number alone."""

    def __post_init__(self) -> None:
        require(self.temperature > 0, "sampling.temperature", self.temperature, "a number above 0")
        require(self.top_k >= 0, "sampling.top_k", self.top_k, "0 (all) or a whole number above")
        require(0 < self.top_p <= 1, "sampling.top_p", self.top_p, "above 0, up to 1")
        require(self.seed >= 0, "sampling.seed", self.seed, "a whole number of at least 0")


def check_compatible(model: Model, training: Training) -> None:
    """Raise ValueError naming the field if model and training cannot be combined."""
    own = model.attention == "own"
    where = "where model.attention is torch"
    require(own or training.batching == "buckets", "training.batching", training.batching, f"buckets {where}")
    require(own or training.residual == "fp32", "training.residual", training.residual, f"fp32 {where}")
    rates = (model.p_drop, model.p_drop_attention, model.p_drop_relu)
    drops = any(rates) or not training.r_drop
    require(drops, "training.r_drop", training.r_drop, "0 where model.p_drop, p_drop_attention and p_drop_relu are 0")
    for name in ("attention_coverage_encoder", "attention_coverage_cross"):
        weight = getattr(training, name)
        require(own or not weight, f"training.{name}", weight, f"0 {where}")


def check_whole_updates(
    training: Training, compiled: str, *, on_cpu: bool, ranks: int, micro_batch_tokens: int
) -> None:
    """Raise ValueError for what REPRO_COMPILE=update does not support; any other ``compiled`` passes.

    Checked when a run is planned and again when its training begins. ``on_cpu``: the device is a CPU for certain; a
    plan does not know what ``auto`` will find elsewhere.
    """
    unsupported = {
        "on a CPU": on_cpu,
        "where training.batching is not packed": training.batching != "packed",
        "where training.skip_nonfinite is above 0": training.skip_nonfinite > 0,
        "where training.attention_coverage_encoder is above 0": training.attention_coverage_encoder > 0,
        "where training.attention_coverage_cross is above 0": training.attention_coverage_cross > 0,
        "with several ranks": ranks > 1,
        "where REPRO_MICRO_BATCH_TOKENS is set": micro_batch_tokens > 0,
    }
    for where, holds in unsupported.items():
        fits = compiled != "update" or not holds
        require(fits, "site.compile (REPRO_COMPILE)", compiled, f"auto, always or never {where}")


def count_parameters(model: Model, source_size: int, target_size: int) -> int:
    """Number of parameters for these vocabulary sizes; if ``model.tied``, both sides share one vocabulary."""
    attention = model.heads * model.d_model * (2 * model.d_k + 2 * model.d_v) + model.d_model
    attention += model.heads * (2 * model.d_k + model.d_v) * model.qkv_bias
    feed_forward = 2 * model.d_model * model.d_ff + model.d_ff + model.d_model
    norm = 2 * model.d_model
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    biases = target_size * model.output_bias
    matrices = target_size if model.tied else source_size + 2 * target_size
    tables = 2 * model.max_positions if model.learns_positions else 0
    last = 2 * norm if model.norm == "pre" else 0
    return model.layers * encoder + model.layers_of_decoder * decoder + (matrices + tables) * model.d_model + last + biases


def supports_varlen_attention(model: Model) -> bool:
    """Whether the GPU kernel for packed batches supports these head sizes."""
    return model.d_k == model.d_v and model.d_k % 8 == 0 and model.d_k <= 256


def from_json(kind: type[Config], values: dict[str, Any]) -> Config:
    """Rebuild a configuration from a job's JSON. Raises ValueError listing the known fields for an unknown one."""
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    for name in values:
        require(name in known, f"{kind.__name__} field", name, ", ".join(known))
    return kind(**values)
