"""Averages checkpoints into one set of weights (§6.1): the mean of the last few, or the best.

model.safetensors  model.json
"""

from dataclasses import asdict
from pathlib import Path

from infra.store.store import Artifact
from model.config import Averaging
from tasks.engine.stage import Facts, JobRequest, current_stage, job_facts, stage


@stage(version=1)
def average(out: Path, run: Artifact, averaging: Averaging) -> Facts:
    """Average the last ``averaging.count`` checkpoints of the training ``run``, or copy the chosen weights."""
    config = {"averaging": asdict(averaging)}
    current_stage().run_job(JobRequest("model.average", config, {"run": run.path()}, out))
    return job_facts(out)
