"""How a model is trained (§5), and which models and devices a training fits."""

from dataclasses import dataclass
from typing import Literal

from .keying import require, require_choices, unkeyed, unkeyed_default
from .mixture import parse_mixture
from .model import Model
from .numerics import Numerics

TargetEnds = Literal["eos", "eos+eos"]
"""The eos tokens after a target in training."""


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
    """Updates between two checkpoints (§6.1)."""  # by default the paper's 10 minutes at 0.4 s an update (§5.2)
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
    skip_nonfinite: int = unkeyed_default(0)
    """Maximum number of skipped updates with a gradient that is not finite; one more ends training as diverged."""
    patience: int = unkeyed_default(0)
    """Stop after this many consecutive dev checks without a lower perplexity; 0 trains to the last update."""
    ema: float = unkeyed_default(0.0)
    """Decay per update of an exponential moving average of the weights, such as 0.999; 0 keeps none. It is used where
    averaging.which is ema; dev checks use the weights themselves."""
    mixture: str = unkeyed_default("")
    """Shares of the corpus's parts in each epoch (``model.config.mixture``): ``europarl=3,news-commentary=1``,
    ``temperature=5``. Empty: every pair once in each epoch."""
    dev_bleu: int = unkeyed_default(0)
    """Number of dev sentences to decode greedily at each dev check for a BLEU; 0 decodes none. One rank decodes for at
    most a minute while the others wait."""
    start: str = unkeyed("")
    """A registered version (``name@alias``, ``name/number``) with the initial weights. The key depends on the weights,
    not on this name. Empty: random initialisation."""
    continue_from: str = unkeyed("")
    """A finished training (``RUN/train``) that this one continues: it takes over weights, optimizer state and place in
    the data, also where its rates depend on ``updates``. ``--set`` calls it ``training.continue`` too. The key depends
    on that training, not on its name. Empty: a longer training continues a shorter one that is equal otherwise, if
    this gives the same weights as training from the beginning."""
    numerics: Numerics = unkeyed_default("fast")  # noqa: RUF009 - a string
    """fast: the kernels that suit the machine; strict: weights that are equal to the bit on different CPUs and for
    different numbers of ranks (docs/reproducibility.md), several times slower."""
    target_ends: TargetEnds = unkeyed_default("eos")  # noqa: RUF009 - a string
    """eos+eos: a target ends in two eos, so that the model also learns that eos follows eos, a control that needs no
    text. Both are labels and count as pieces; dev perplexity and searches know the first alone."""
    warmup_epochs: int = unkeyed_default(0)
    """Warm-up in epochs in place of updates: above 0, ``warmup`` must be 0."""
    keep_epochs: int = unkeyed_default(0)
    """Keep every checkpoint of this many last epochs, that of the last update included, for ``averaging.which=kept``:
    above 0, ``keep`` must be 0."""
    minutes: float = unkeyed_default(0.0)
    """Stop at the first update after so many minutes that leaves ``keep`` checkpoints; 0: no limit. How many updates
    that are depends on the machine; the fact ``updates`` says it, and that many give the same weights again, but with
    the schedule linear."""

    def __post_init__(self) -> None:
        require_choices(self, "training")
        for name in ("batch_tokens", "checkpoint_every", "dev_every"):
            require(getattr(self, name) >= 1, f"training.{name}", getattr(self, name), "a whole number of at least 1")
        in_epochs = {"updates": "epochs", "warmup": "warmup_epochs", "keep": "keep_epochs"}
        for name in (*in_epochs.values(), "batch_sentences", "skip_nonfinite", "patience", "dev_bleu"):
            value = getattr(self, name)
            require(value >= 0, f"training.{name}", value, "0 (off) or a whole number above")
        for name, other in in_epochs.items():
            value = getattr(self, name)
            if getattr(self, other):
                require(value == 0, f"training.{name}", value, f"0 where training.{other} is above 0")
            else:
                require(value >= 1, f"training.{name}", value, "a whole number of at least 1")
        for name in ("clip_norm", "attention_coverage_encoder", "attention_coverage_cross", "minutes"):
            require(getattr(self, name) >= 0, f"training.{name}", getattr(self, name), "0 (off) or a number above")
        for name in ("label_smoothing", "beta1", "beta2", "ema"):
            require(0 <= getattr(self, name) < 1, f"training.{name}", getattr(self, name), "0 up to, not including, 1")
        for name in ("factor", "peak", "eps"):
            require(getattr(self, name) > 0, f"training.{name}", getattr(self, name), "a number above 0")
        sentences = self.batch_sentences
        padded = self.batching == "buckets" or not sentences
        require(padded, "training.batch_sentences", sentences, "0 where training.batching is packed")
        require(0 <= self.seed < 2**31, "training.seed", self.seed, f"a whole number from 0 to {2**31 - 1:,}")
        residuals = ("fp32", "bf16") if self.precision == "bf16" else ("fp32",)
        needed = " or bf16" if self.precision == "bf16" else " where training.precision is not bf16"
        require(self.residual in residuals, "training.residual", self.residual, f"fp32{needed}")
        require(self.weight_decay >= 0, "training.weight_decay", self.weight_decay, "0 or above")
        decays = self.optimizer == "adamw" or not self.weight_decay
        require(decays, "training.weight_decay", self.weight_decay, "0, or training.optimizer adamw")
        for name in ("patience", "minutes"):
            where = f"where training.{name} is above 0"
            known = not getattr(self, name)  # else it may end at any update
            counted = known or self.checkpoints_from == "start"
            require(counted, "training.checkpoints_from", self.checkpoints_from, f"start {where}")
            require(known or not self.keep_epochs, "training.keep_epochs", self.keep_epochs, f"0 {where}")
        alone = not (self.start and self.continue_from)
        require(alone, "training.continue_from", self.continue_from, "empty where training.start is given")
        parse_mixture(self.mixture)
        exact = self.numerics == "fast" or self.precision == "fp32"
        require(exact, "training.precision", self.precision, "fp32 where training.numerics is strict")

    @property
    def may_end_early(self) -> bool:
        """Whether the last update is known only when it is done."""
        return self.patience > 0 or self.minutes > 0


def check_compatible(model: Model, training: Training) -> None:
    """Raise ValueError naming the field if model and training cannot be combined."""
    own = model.attention == "own"
    where = "where model.attention is torch"
    require(own or training.batching == "buckets", "training.batching", training.batching, f"buckets {where}")
    require(own or training.residual == "fp32", "training.residual", training.residual, f"fp32 {where}")
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
