"""Named settings: cleaning profiles (``--set profile=tutorial``) and published reproductions (``--set preset=…``).

Both are lists of assignments as for ``--set``, no more. docs/presets.md says where each value comes from and what
of the reproduction it leaves out. All other values stay those of the run.
"""

from collections.abc import Mapping

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
    "tutorial": (
        "profile=tutorial",
        *_OFFICIAL_CODE,
        "model.source_ends=none",
        "training.label_smoothing=0.1",
        "training.checkpoint_every=1500",
        "training.keep=0",
        "training.keep_epochs=2",
        "averaging.which=kept",
        "averaging.count=1",
        "decoding.beam=4",
        "decoding.alpha=0.6",
    ),
    "workbench": (
        "filters.normalise.quotes=true",
        "vocabulary.scripts=Latin",
        "sharding.max_pieces=200",
        "sharding.too_long=cut",
        "model.norm=pre",
        "model.qkv_bias=true",
        "model.source_ends=bos+eos",
        "model.positions=learned_sinusoid",
        "training.updates=0",
        "training.epochs=26",
        "training.schedule=linear",
        "training.warmup=0",
        "training.warmup_epochs=1",
        "training.peak=1e-3",
        "training.optimizer=adamw",
        "training.beta1=0.9",
        "training.beta2=0.98",
        "training.eps=1e-6",
        "training.weight_decay=1e-3",
        "decoding.alpha=0",
    ),
    "multi30k-tutorial": (
        "profile=paper",
        "vocabulary.joint=false",
        "vocabulary.tokens=spacy",
        "vocabulary.lowercase=true",
        "vocabulary.min_frequency=1",
        "vocabulary.size=50000",  # more than Multi30k has
        "sharding.max_pieces=58",  # 60 positions with bos and eos
        "model.layers=6",
        "model.d_model=512",
        "model.d_ff=2048",
        "model.heads=8",
        "model.d_k=64",
        "model.d_v=64",
        "model.p_drop=0.1",
        "model.norm=post",
        "model.tied=false",
        "model.source_ends=bos+eos",
        "model.positions=learned",
        "model.max_positions=60",
        "model.scale_embeddings=false",
        "model.output_bias=true",
        "training.label_smoothing=0",
        "training.updates=0",
        "training.epochs=15",
        "training.checkpoint_every=1813",  # an epoch of Multi30k
        "training.batching=buckets",  # packed batches are counted in tokens
        "training.batch_sentences=16",
        "training.schedule=constant",
        "training.warmup=1",
        "training.peak=1e-4",
        "training.optimizer=adam",
        "training.beta1=0.9",
        "training.beta2=0.999",
        "training.eps=1e-8",
        "averaging.count=1",
        "decoding.beam=7",
    ),
    "aiayn": (
        "model.norm=pre",
        "model.init=normal",
        "model.source_ends=none",
        "training.batching=packed",
        "training.target_ends=eos+eos",
        "training.schedule=paper",
        "training.factor=1",
        "training.warmup=4000",
    ),
    "notes": (
        "vocabulary.nfkc=true",
        "model.norm=post",
        "model.qkv_bias=true",
        "model.source_ends=bos+eos",
        "training.label_smoothing=0",
        "training.updates=0",
        "training.epochs=24",
        "training.schedule=paper",
        "training.factor=1",
        "training.warmup=4000",
    ),
}
"""Assignments by the name of the preset."""


_EMPTY_LINES_ONLY = (
    "filters.rules=Empty",
    "filters.exclude=",
    "filters.seed=1",
    "filters.max_rejected=0.2",
    "filters.normalise.nfc=false",
    "filters.normalise.control=false",
    "filters.normalise.white_space=false",
    "filters.normalise.quotes=false",
)
PROFILES = {
    "paper": (*_EMPTY_LINES_ONLY, "sharding.min_pieces=1", "sharding.max_pieces=256", "sharding.max_ratio=0"),
    "tutorial": (*_EMPTY_LINES_ONLY, "sharding.min_pieces=3", "sharding.max_pieces=150", "sharding.max_ratio=2"),
}
"""Both remove empty lines only; repeated lines and lines of the sets stay. The limit of 256 pieces per side is what
fits the paper's model, not a rule of the paper."""
NAMED: Mapping[str, Mapping[str, tuple[str, ...]]] = {"preset": PRESETS, "profile": PROFILES}
"""What ``preset=NAME`` and ``profile=NAME`` stand for, in the order in which they apply."""
