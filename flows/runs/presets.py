"""Named settings: cleaning profiles (``--set profile=tutorial``) and published reproductions (``--set preset=…``).

A preset is a list of assignments as for ``--set``, no more. docs/presets.md says where each value comes from and what
of the reproduction it leaves out. All other values stay those of the run.
"""

from dataclasses import dataclass, replace

from model.config.normalise import Normalise
from tasks.cleaning.filters import Empty, Filters
from tasks.stages.shard import Sharding

_OFFICIAL_CODE = (
    "model.norm=pre",
    "model.init=glorot",
    "model.p_drop_attention=0.1",
    "model.p_drop_relu=0.1",
    "training.schedule=paper",
    "training.factor=2",
    "training.warmup=8000",
    "training.batching=buckets",
)

PRESETS = {
    "tensor2tensor": _OFFICIAL_CODE,
    "tutorial": ("profile=tutorial", *_OFFICIAL_CODE),
    "workbench": (
        "filters.normalise.quotes=true",
        "vocabulary.scripts=Latin",
        "sharding.max_pieces=200",
        "sharding.too_long=cut",
        "model.positions=learned_sinusoid",
        "training.schedule=linear",
        "training.peak=1e-3",
        "training.optimizer=adamw",
        "training.weight_decay=1e-3",
        "training.eps=1e-6",
    ),
    "multi30k-tutorial": (
        "vocabulary.joint=false",
        "vocabulary.tokens=words",
        "vocabulary.size=50000",  # the most; two occurrences decide
        "vocabulary.min_frequency=2",
        "vocabulary.lowercase=true",
        "model.tied=false",
        "model.layers=6",
        "model.d_model=512",
        "model.positions=learned",
        "training.batching=buckets",  # packed batches are counted in tokens
        "training.batch_sentences=16",
        "training.schedule=constant",
        "training.warmup=1",
        "training.peak=1e-4",
        "decoding.beam=7",
    ),
    "aiayn": (
        "model.norm=pre",
        "model.init=normal",
        "training.schedule=paper",
        "training.factor=1",
        "training.warmup=4000",
    ),
    "notes": (
        "model.norm=post",
        "training.label_smoothing=0",
        "training.schedule=paper",
        "training.factor=1",
        "training.warmup=4000",
    ),
}
"""Assignments by the name of the preset."""


@dataclass(frozen=True)
class Profile:
    """Which pairs are trained on: filters of text, and limits in pieces."""

    filters: Filters
    sharding: Sharding

    def limits(self, sharding: Sharding) -> Sharding:
        """``sharding`` with this profile's limits in pieces."""
        theirs = self.sharding
        return replace(sharding, min_pieces=theirs.min_pieces, max_pieces=theirs.max_pieces, max_ratio=theirs.max_ratio)


AS_READ = Normalise(nfc=False, control=False, white_space=False)

PROFILES = {
    "paper": Profile(Filters((Empty(),), AS_READ), Sharding(min_pieces=1, max_pieces=256)),
    "tutorial": Profile(Filters((Empty(),), AS_READ), Sharding(min_pieces=3, max_pieces=150, max_ratio=2.0)),
}
"""``paper`` removes empty lines only; repeated lines and lines of the sets stay. Its limit of 256 pieces per side is
what fits the model, not a rule of the paper. ``tutorial``: 3 to 150 pieces per side, ratio at most 2."""
