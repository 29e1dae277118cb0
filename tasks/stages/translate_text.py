"""Translates training text for synthetic pairs: one job, which on a retry goes on after its last complete block.

00000.parquet  00001.parquet  …    pair_id, source, hypotheses (best first, those that end; none for other lines)
"""

from dataclasses import asdict
from pathlib import Path

from infra.store.local import Artifact
from model.config import Decoding, Sampling
from tasks.engine.stage import Facts, job_facts, run_job, stage

BLOCK_LINES = 2_000
"""Lines that are written together: what a kill can lose."""


@stage(version=1, retries=3, resume=True, needs="gpu")
def translate_text(
    out: Path,
    weights: Artifact,
    vocabulary: Artifact,
    text: Artifact,
    decoding: Decoding,
    lines: int = 0,
    sampling: Sampling | None = None,
) -> Facts:
    """Translate the source side of the first ``lines`` of ``pairs.parquet``, all if 0.

    With ``sampling`` a translation is drawn, for which ``decoding`` limits the length; else it is the best of a beam
    search.
    """
    config = {"decoding": decoding.search(), "n_best": 1, "lines": lines, "block_lines": BLOCK_LINES}
    if sampling:
        config["sampling"] = asdict(sampling)
    inputs = {"weights": weights.path(), "vocabulary": vocabulary.path(), "text": text.path()}
    run_job("model.translate_text", config, inputs, out, numerics=decoding.numerics)
    return job_facts(out)
