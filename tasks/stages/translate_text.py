"""Translates training text for synthetic pairs: one job, which on a retry continues after its last complete block.

00000.parquet  00001.parquet  …    pair_id, source, hypotheses (the finished ones, best first; perhaps none)
"""

from pathlib import Path

from infra.errors import JobFailed, Preempted
from infra.store.store import Artifact
from model.config import Decoding
from tasks.engine.stage import Facts, JobRequest, current_stage, job_facts, stage

BLOCK_LINES = 2_000
"""Lines per block; a killed job loses at most one block."""


@stage(version=1, resume=True, needs="gpu")
def translate_text(
    out: Path,
    weights: Artifact,
    vocabulary: Artifact,
    text: Artifact,
    decoding: Decoding,
    lines: int = 0,
    n_best: int = 1,
    others: tuple[Artifact, ...] = (),
) -> Facts:
    """Translate the source side of the first ``lines`` of ``pairs.parquet``, all if 0; ``n_best`` hypotheses each.

    ``others`` is empty, or holds the weights of the other models of an ensemble.
    """
    config = {"decoding": decoding.search(), "n_best": n_best, "lines": lines, "block_lines": BLOCK_LINES}
    inputs = {"weights": weights.path(), "vocabulary": vocabulary.path(), "text": text.path()}
    inputs |= {f"weights_{number}": other.path() for number, other in enumerate(others, start=2)}
    job = JobRequest("model.translate_text", config, inputs, out, numerics=decoding.numerics)
    while True:
        before = _blocks(out)
        try:
            current_stage().run_job(job)
            return job_facts(out)
        except (JobFailed, Preempted) as error:
            # A job that left another block is started again without using one of the stage's retries.
            if _blocks(out) <= before:
                raise
            current_stage().failures.append(f"{error}")


def _blocks(out: Path) -> int:
    return len(list(out.glob("*.parquet")))
