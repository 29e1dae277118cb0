"""Translates one evaluation set by beam search (§6.1) with a model or an ensemble.

It also stores reference log-probabilities and attention maps (for an ensemble, those of its first model).

hypotheses.parquet  attention.npz  attention.json
"""

from dataclasses import asdict
from pathlib import Path

from infra.store.store import Artifact
from model.config import Decoding
from model.config.normalise import Normalise
from tasks.engine.stage import Facts, JobRequest, current_stage, job_facts, stage


@stage(version=2, needs="gpu")
def translate(
    out: Path,
    weights: Artifact,
    vocabulary: Artifact,
    pairs: Artifact,
    prepared: Artifact,
    decoding: Decoding,
    normalise: Normalise,
    others: tuple[Artifact, ...] = (),
) -> Facts:
    """Translate the sources of a set and compute the log-probability of its references (shards in ``pairs``).

    Sources come from ``prepared``, normalised like the training text and stripped, as in a registered version.
    ``others`` is empty, or holds the weights of the other models of an ensemble.
    """
    inputs = {"weights": weights.path(), "vocabulary": vocabulary.path(), "pairs": pairs.path()}
    inputs["text"] = prepared.path()
    inputs |= {f"weights_{number}": other.path() for number, other in enumerate(others, start=2)}
    config = {"decoding": decoding.search(), "normalise": asdict(normalise)}
    current_stage().run_job(JobRequest("model.translate", config, inputs, out, numerics=decoding.numerics))
    return job_facts(out)
