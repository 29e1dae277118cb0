"""Settings of published reproductions by name: ``--set preset=tensor2tensor``.

A preset is a list of assignments as for ``--set``, no more. docs/presets.md says where each value comes from and what
of the reproduction it leaves out. All other values stay those of the run.
"""

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
