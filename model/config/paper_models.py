"""The models and trainings of the rows of Table 3; each name says what differs from base.

    A  heads, d_k and d_v             B  only d_k     C  layers, d_model, d_ff
    D  P_drop, label smoothing (ls)   E  learned positions

Table 3 reports scores of the last checkpoint on newstest2013, without averaging (§6.2).
"""

from dataclasses import replace

from . import Model, Training

BASE = Model()
BASE_TRAINING = Training(batching="packed", precision="bf16")
"""The training of §5 with the fastest settings on a GPU. The kernel for packed batches does not support rows where d_k
differs from d_v or exceeds 256; these rows train on padded batches of pairs of similar length (``BUCKETS``)."""
BIG = Model(d_model=1024, d_ff=4096, heads=16, p_drop=0.3)
BUCKETS = replace(BASE_TRAINING, batching="buckets")
BIG_TRAINING = replace(BASE_TRAINING, updates=300_000, checkpoint_every=600, keep=20, dev_every=3_000)
"""It writes a checkpoint every 600 updates: the paper's 10 minutes at 1.0 s per update (§5.2)."""

TABLE_3 = {
    "base": (BASE, BASE_TRAINING),
    "A1": (replace(BASE, heads=1, d_k=512, d_v=512), BUCKETS),
    "A4": (replace(BASE, heads=4, d_k=128, d_v=128), BASE_TRAINING),
    "A16": (replace(BASE, heads=16, d_k=32, d_v=32), BASE_TRAINING),
    "A32": (replace(BASE, heads=32, d_k=16, d_v=16), BASE_TRAINING),
    "B16": (replace(BASE, d_k=16), BUCKETS),
    "B32": (replace(BASE, d_k=32), BUCKETS),
    "C2": (replace(BASE, layers=2), BASE_TRAINING),
    "C4": (replace(BASE, layers=4), BASE_TRAINING),
    "C8": (replace(BASE, layers=8), BASE_TRAINING),
    "C256": (replace(BASE, d_model=256, d_k=32, d_v=32), BASE_TRAINING),
    "C1024": (replace(BASE, d_model=1024, d_k=128, d_v=128), BASE_TRAINING),
    "Cff1024": (replace(BASE, d_ff=1024), BASE_TRAINING),
    "Cff4096": (replace(BASE, d_ff=4096), BASE_TRAINING),
    "D0": (replace(BASE, p_drop=0.0), BASE_TRAINING),
    "D2": (replace(BASE, p_drop=0.2), BASE_TRAINING),
    "Dls0": (BASE, replace(BASE_TRAINING, label_smoothing=0.0)),
    "Dls2": (BASE, replace(BASE_TRAINING, label_smoothing=0.2)),
    "E": (replace(BASE, positions="learned"), BASE_TRAINING),
    "big": (BIG, BIG_TRAINING),
}
"""Maps each row to its model and training."""
