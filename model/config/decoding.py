"""The settings after training: which checkpoints are averaged, and how the model translates (§6.1)."""

from dataclasses import dataclass, fields
from typing import Any, Literal

from .keying import require, require_choices, unkeyed, unkeyed_default
from .numerics import Numerics

EngineChoice = Literal["auto", "own", "ctranslate2"]
"""The program that searches for translations."""
Quantization = Literal["float32", "int8"]
"""The number type of CTranslate2's matrices."""
COMPARED = 100
"""The number of dev sentences that the comparison of the engines translates."""


@dataclass(frozen=True)
class Averaging:
    """Checkpoint averaging (§6.1: the last 5 for base, 20 for big; Table 3 uses 1)."""

    count: int = 5
    """Checkpoints whose weights are averaged; at most ``training.keep``, and 1 unless ``which`` is last."""
    which: Literal["last", "best", "kept"] = unkeyed_default("last")
    """last: the last ``count``; best: the one with the lowest dev perplexity (needs training.patience above 0);
    kept: all that the training keeps, as with training.keep_epochs."""

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
    """Exponent of the length penalty."""
    max_extra: int = 50
    """Maximum output length: the input length plus this many pieces."""
    min_length: int = unkeyed_default(0)
    """Minimum output length in pieces, without eos."""
    ensemble: tuple[int, ...] = unkeyed(())
    """Seeds, including ``training.seed``, such as 1,2,3: the run trains and scores one model for each seed, and scores
    their ensemble. Keys depend on the weights, not on this list. Empty: only the run's own model."""
    length_penalty: Literal["gnmt", "length"] = unkeyed_default("gnmt")
    """The divisor of a hypothesis's log-probability. gnmt: ((5 + length) / 6) ** alpha; length: length ** alpha, which
    with alpha 1 is the ranking of fairseq. The length includes eos."""
    numerics: Numerics = unkeyed_default("fast")  # noqa: RUF009 - a string
    """strict: translations of evaluation sets are bit-identical on different CPUs, but several times slower."""
    precision: Literal["fp32", "tf32", "bf16"] = unkeyed_default("fp32")
    """Number type of the matrix products that translate evaluation sets and text for training. tf32 needs a GPU. bf16
    also stores keys and values in bf16; norms, softmax, logits and scores stay float32. Other searches use float32."""

    def __post_init__(self) -> None:
        require_choices(self, "decoding")
        require(1 <= self.beam <= 1_000, "decoding.beam", self.beam, "a whole number from 1 to 1,000")
        require(0 <= self.alpha <= 100, "decoding.alpha", self.alpha, "0 to 100")
        require(self.max_extra >= 1, "decoding.max_extra", self.max_extra, "a whole number of at least 1")
        require(self.min_length >= 0, "decoding.min_length", self.min_length, "0 (off) or above")
        exact = self.numerics == "fast" or self.precision == "fp32"
        require(exact, "decoding.precision", self.precision, "fp32 where decoding.numerics is strict")
        seeds = self.ensemble
        several = not seeds or len(set(seeds)) == len(seeds) > 1
        allowed = "nothing, or two or more different whole numbers, as in 1,2,3"
        require(several and all(0 <= seed < 2**31 for seed in seeds), "decoding.ensemble", seeds, allowed)

    def search(self) -> dict[str, Any]:
        """Return all fields except ``ensemble``: the settings of a search, for any model or ensemble."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "ensemble"}

    @property
    def penalty_formula(self) -> str:
        """The length penalty as text."""
        return f"{'length' if self.length_penalty == 'length' else '((5 + length) / 6)'} ** {self.alpha:g}"

    @property
    def most_hypotheses(self) -> int:
        """The maximum number of hypotheses that a search can finish.

        A search ends when ``beam`` hypotheses are finished; its last step can finish up to ``beam`` of them."""
        return 2 * self.beam - 1

    def check_n_best(self, n_best: int) -> None:
        """Raise ValueError if no search can find ``n_best`` hypotheses."""
        allowed = f"1 to {self.most_hypotheses}, the most that can finish with decoding.beam {self.beam}"
        require(1 <= n_best <= self.most_hypotheses, "n_best", n_best, allowed)

    def lengths(self, source: int) -> tuple[int, int]:
        """Return the minimum and maximum output length for a source of this length; all lengths include eos.

        The length of a source counts one eos for every ``Model.source_ends``."""
        most = source - 1 + self.max_extra
        return min(1 + self.min_length, most), most
