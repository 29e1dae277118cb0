"""Translates one evaluation set by beam search (§6.1); also stores reference log-probabilities and attention maps.

hypotheses.parquet  attention.npz  attention.json
"""

from dataclasses import asdict
from pathlib import Path

from infra.store.local import Artifact
from model.config import Decoding
from tasks.engine.stage import Facts, job_facts, run_job, stage


@stage(version=1, retries=1, needs="gpu")
def translate(out: Path, weights: Artifact, vocabulary: Artifact, pairs: Artifact, decoding: Decoding) -> Facts:
    """Translate the source side of ``pairs`` (shards) and compute the log-probability of its references."""
    inputs = {"weights": weights.path(), "vocabulary": vocabulary.path(), "pairs": pairs.path()}
    run_job("model.translate", {"decoding": asdict(decoding)}, inputs, out, numerics=decoding.numerics)
    return job_facts(out)
