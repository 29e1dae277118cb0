"""Runs as values: what is computed from what, by which settings. A run of your own is ``replace(PAPER_BASE, …)``."""

from dataclasses import dataclass

from tasks.filters import (
    Filters,
)
from tasks.learn_bpe import Vocabulary
from tasks.shard import Sharding

from model.config import Averaging, Decoding, Model, Training
from model.fields import require
from tasks.corpora import Corpus, EvaluationSet


@dataclass(frozen=True)
class Run:
    """Everything that decides the result; where it is computed is the Site's business."""

    name: str
    about: str
    corpus: Corpus
    sets: tuple[EvaluationSet, ...]
    """Evaluation sets; adding one trains nothing again."""
    dev: str
    """The set that training watches and that decides on ``champion``; never a test set."""
    filters: Filters
    vocabulary: Vocabulary
    sharding: Sharding
    model: Model
    training: Training
    averaging: Averaging
    decoding: Decoding

    def __post_init__(self) -> None:
        names = [s.name for s in self.sets]
        require(self.dev in names, "dev", self.dev, f"one of the run's sets: {', '.join(names)}")
        for name in self.filters.exclude:
            require(name in names, "filters.exclude", name, f"one of the run's sets: {', '.join(names)}")
        count, keep = self.averaging.count, self.training.keep
        require(count <= keep, "averaging.count", count, f"at most training.keep, which is {keep}")
        longest, positions = self.sharding.max_pieces, self.model.max_positions
        fits = self.model.positions == "sinusoid" or longest < positions
        require(fits, "sharding.max_pieces", longest, f"below model.max_positions, which is {positions}")
