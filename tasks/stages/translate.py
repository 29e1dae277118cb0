"""Translates one evaluation set by beam search (§6.1) with a model or an ensemble.

It also stores reference log-probabilities and attention maps (of an ensemble, those of its first model).

hypotheses.parquet  attention.npz  attention.json
"""

from pathlib import Path

from infra.store.local import Artifact
from model.config import Decoding
from tasks.engine.stage import Facts, job_facts, run_job, stage


@stage(version=1, retries=1, needs="gpu")
def translate(
    out: Path,
    weights: Artifact,
    vocabulary: Artifact,
    pairs: Artifact,
    decoding: Decoding,
    others: tuple[Artifact, ...] = (),
) -> Facts:
    """Translate the source side of ``pairs`` (shards) and compute the log-probability of its references.

    ``others`` is empty, or holds the weights of the other models of an ensemble.
    """
    inputs = {"weights": weights.path(), "vocabulary": vocabulary.path(), "pairs": pairs.path()}
    inputs |= {f"weights_{number}": other.path() for number, other in enumerate(others, start=2)}
    run_job("model.translate", {"decoding": decoding.search()}, inputs, out, numerics=decoding.numerics)
    return job_facts(out)
