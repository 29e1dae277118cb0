"""Trains a model on shards: one job under torchrun, which resumes from its newest complete checkpoint on a retry.

checkpoints/00004500/model.safetensors, …   the last ``training.keep`` of them
checkpoints/best.json, best/                with ``training.patience``: the one with the lowest dev perplexity
model.json  metrics.jsonl  exit.json  job.log
"""

from dataclasses import asdict
from pathlib import Path

from infra.errors import JobFailed, Preempted
from infra.store.store import Artifact
from model.config import Model, Training
from tasks.engine.stage import Facts, current_stage, job_facts, stage


def newest_checkpoint(out: Path) -> int:
    """The update of the newest checkpoint, 0 if there is none."""
    return max((int(path.name) for path in out.glob("checkpoints/*") if path.name.isdigit()), default=0)


@stage(version=2, resume=True, needs="gpu")
def train(
    out: Path,
    shards: Artifact,
    dev: Artifact,
    vocabulary: Artifact,
    model: Model,
    training: Training,
    start: tuple[Artifact, ...] = (),
) -> Facts:
    """Train a Transformer (§3) on the shards, with validation by the perplexity of the dev set.

    ``start`` is empty, or holds the one artifact with the initial weights (``model.safetensors``).
    """
    inputs = {"shards": shards.path(), "dev": dev.path(), "vocabulary": vocabulary.path()}
    if start:
        inputs["start"] = start[0].path()
    config = {"model": asdict(model), "training": asdict(training)}
    while True:
        before = newest_checkpoint(out)
        try:
            current_stage().run_job("model.train", config, inputs, out, distributed=True, numerics=training.numerics)
            return job_facts(out)
        except (JobFailed, Preempted):
            # A job that left a newer checkpoint is relaunched without using one of the stage's retries.
            if newest_checkpoint(out) <= before:
                raise
