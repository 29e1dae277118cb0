"""The settings of a training (§5), and checks that a training fits a model and a device."""

from dataclasses import dataclass
from typing import Literal

from .keying import require, require_choices, unkeyed, unkeyed_default
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
    """Maximum pieces of an update per side, including special tokens, summed over all ranks (§5.1)."""
    label_smoothing: float = 0.1
    """Probability that label smoothing distributes over the vocabulary (§5.4); 0: no smoothing."""
    schedule: Literal["paper", "inverse_sqrt", "linear", "clock", "constant"] = "paper"
    """paper: factor * d_model^-0.5 * min(update^-0.5, update * warmup^-1.5) (§5.3). The others first rise
    linearly to ``peak`` over ``warmup`` updates; their names describe the learning rate afterwards: clock is linear, to
    0 at the end of ``updates`` or of ``minutes``, whichever is nearer."""
    warmup: int = 4_000
    """Updates over which the learning rate rises (§5.3)."""
    factor: float = 1.0
    """Factor of the schedule ``paper``."""
    peak: float = 1e-3
    """Highest learning rate of the schedules other than ``paper``."""
    beta1: float = 0.9
    """Adam's decay rate of the mean of gradients (§5.3)."""
    beta2: float = 0.98
    """Adam's decay rate of the mean of squared gradients (§5.3)."""
    eps: float = 1e-9
    """Adam's epsilon, added to the root of the mean of squared gradients (§5.3)."""
    clip_norm: float = 0.0
    """Maximum gradient norm; 0 disables clipping, as in the paper."""
    seed: int = 1
    """Seed of initial weights, dropout and the order of batches."""
    precision: Literal["fp32", "tf32", "bf16"] = "fp32"
    """Number type of matrix products. tf32 needs a GPU. Weights, Adam's moments, norms and softmax stay float32."""
    residual: Literal["fp32", "bf16"] = unkeyed_default("fp32")
    """Number type of the residual stream between sublayers. bf16 needs ``precision`` bf16 and halves the memory
    traffic; norms, softmax, loss and the gradients of weights stay float32."""
    checkpoint_every: int = 1_500
    """Updates between two checkpoints (§6.1)."""  # the default is the paper's 10 minutes at 0.4 s an update (§5.2)
    keep: int = 5
    """Number of last checkpoints to keep for averaging."""
    dev_every: int = 1_500
    """Updates between two computations of the dev perplexity."""
    batch_sentences: int = unkeyed_default(0)
    """Maximum pairs of an update; above 0, ``batch_tokens`` has no effect. 0: ``batch_tokens`` limits an update."""
    epochs: int = unkeyed_default(0)
    """Length of the training in epochs instead of updates: above 0, ``updates`` must be 0."""
    batching: Literal["buckets", "mixed", "packed"] = unkeyed_default("buckets")
    """buckets: padded batches of pairs of similar length; packed: batches of one size, of pairs of any length end to
    end; mixed: pairs of any length, computed in padded parts of similar length. On a CPU, packed is slower."""
    optimizer: Literal["adam", "adamw"] = unkeyed_default("adam")
    """adam: the paper's optimizer (§5.3); adamw: Adam with decoupled ``weight_decay``."""
    weight_decay: float = unkeyed_default(0.0)
    """AdamW's weight decay of matrices and embeddings; biases and norms have no decay."""
    attention_coverage_encoder: float = unkeyed_default(0.0)
    """Weight of the attention-coverage loss (``model.training.coverage``) of the encoder's self-attention."""
    attention_coverage_cross: float = unkeyed_default(0.0)
    """Weight of the attention-coverage loss of the cross-attention."""
    patience: int = unkeyed_default(0)
    """Stop after this many consecutive dev checks without a lower perplexity; 0 trains to the last update."""
    dev_bleu: int = unkeyed_default(0)
    """Number of dev sentences that each dev check decodes greedily for a BLEU score; 0: none. With several
    ranks, the main one decodes for at most half of REPRO_RANK_TIMEOUT, and the others wait."""
    start: str = unkeyed("")
    """A registered version (``name@alias`` or ``name/number``) that gives the initial weights. The key depends on the
    weights, not on this name. Empty: random initialisation."""
    continue_from: str = unkeyed("")
    """A finished training (``RUN/train``) that this one continues: it takes over weights, optimizer state and position
    in the data, even if the learning rates depend on ``updates``. ``--set`` also accepts the name
    ``training.continue``. The key depends on that training, not on its name. Empty: a longer training continues a
    shorter one with equal settings if this gives the same weights."""
    numerics: Numerics = unkeyed_default("fast")  # noqa: RUF009 - a string
    """fast: the kernels that suit the machine; strict: weights that are bit-identical on different CPUs and for
    different numbers of ranks (docs/reproducibility.md), but several times slower."""
    target_ends: TargetEnds = unkeyed_default("eos")  # noqa: RUF009 - a string
    """eos+eos: a target ends in two eos, and the model also learns that eos follows eos: a control without text. Both
    are labels and count as pieces. Dev perplexity and searches use only the first."""
    warmup_epochs: int = unkeyed_default(0)
    """Warm-up in epochs instead of updates: above 0, ``warmup`` must be 0."""
    keep_epochs: int = unkeyed_default(0)
    """Keep every checkpoint of the last ``keep_epochs`` epochs, including the last update's, for
    ``averaging.which=kept``: above 0, ``keep`` must be 0."""
    minutes: float = unkeyed_default(0.0)
    """Stop after this many minutes, at the first update at which ``keep`` checkpoints exist; 0: no limit. The number
    of updates depends on the machine and is the fact ``updates``. A training of that many updates gives the same
    weights again, unless the schedule is linear or clock."""

    def __post_init__(self) -> None:
        require_choices(self, "training")
        for name in ("batch_tokens", "checkpoint_every", "dev_every"):
            require(getattr(self, name) >= 1, f"training.{name}", getattr(self, name), "a whole number of at least 1")
        in_epochs = {"updates": "epochs", "warmup": "warmup_epochs", "keep": "keep_epochs"}
        for name in (*in_epochs.values(), "batch_sentences", "patience", "dev_bleu"):
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
        for name in ("label_smoothing", "beta1", "beta2"):
            require(0 <= getattr(self, name) < 1, f"training.{name}", getattr(self, name), "0 up to, not including, 1")
        for name in ("factor", "peak", "eps"):
            require(getattr(self, name) > 0, f"training.{name}", getattr(self, name), "a number above 0")
        sentences = self.batch_sentences
        allowed = f"0 where training.batching is {self.batching}"
        require(self.batching == "buckets" or not sentences, "training.batch_sentences", sentences, allowed)
        require(0 <= self.seed < 2**31, "training.seed", self.seed, f"a whole number from 0 to {2**31 - 1:,}")
        fits = self.residual == "fp32" or self.precision == "bf16"
        require(fits, "training.residual", self.residual, "fp32 where training.precision is not bf16")
        require(self.weight_decay >= 0, "training.weight_decay", self.weight_decay, "0 or above")
        decays = self.optimizer == "adamw" or not self.weight_decay
        require(decays, "training.weight_decay", self.weight_decay, "0, or training.optimizer adamw")
        for name in ("patience", "minutes"):
            known = not getattr(self, name)  # else it may end at any update
            allowed = f"0 where training.{name} is above 0"
            require(known or not self.keep_epochs, "training.keep_epochs", self.keep_epochs, allowed)
        timed = self.schedule != "clock" or self.minutes > 0
        require(timed, "training.minutes", self.minutes, "above 0 where training.schedule is clock")
        alone = not (self.start and self.continue_from)
        require(alone, "training.continue_from", self.continue_from, "empty where training.start is given")
        exact = self.numerics == "fast" or self.batching != "mixed"
        require(exact, "training.batching", self.batching, "buckets or packed where training.numerics is strict")
        exact = self.numerics == "fast" or self.precision == "fp32"
        require(exact, "training.precision", self.precision, "fp32 where training.numerics is strict")

    @property
    def may_end_early(self) -> bool:
        """Whether the training may end before its last planned update."""
        return self.patience > 0 or self.minutes > 0


def check_compatible(model: Model, training: Training) -> None:
    """Raise ValueError naming the field if the training does not support the model."""
    own = model.attention == "own"
    where = "where model.attention is torch"
    require(own or training.batching != "packed", "training.batching", training.batching, f"buckets or mixed {where}")
    require(own or training.residual == "fp32", "training.residual", training.residual, f"fp32 {where}")
    for name in ("attention_coverage_encoder", "attention_coverage_cross"):
        weight = getattr(training, name)
        require(own or not weight, f"training.{name}", weight, f"0 {where}")


def check_whole_updates(
    training: Training, compiled: str, *, on_cpu: bool, ranks: int, micro_batch_tokens: int
) -> None:
    """Raise ValueError if ``compiled`` is update and REPRO_COMPILE=update does not support the training.

    The plan of a run and the beginning of its training both call this. ``on_cpu``: the device is certainly a CPU; a
    plan cannot know which device ``auto`` will find on another machine.
    """
    unsupported = {
        "on a CPU": on_cpu,
        "where training.batching is not packed": training.batching != "packed",
        "where training.attention_coverage_encoder is above 0": training.attention_coverage_encoder > 0,
        "where training.attention_coverage_cross is above 0": training.attention_coverage_cross > 0,
        "with several ranks": ranks > 1,
        "where REPRO_MICRO_BATCH_TOKENS is set": micro_batch_tokens > 0,
    }
    for where, holds in unsupported.items():
        fits = compiled != "update" or not holds
        require(fits, "site.compile (REPRO_COMPILE)", compiled, f"auto, always or never {where}")
