"""Shards to weights: one job under torchrun, which goes on from its newest whole checkpoint when it is tried again.

checkpoints/00004500/model.safetensors, …   the last ``training.keep`` of them
model.json  metrics.jsonl  exit.json  job.log
"""

from dataclasses import asdict
from pathlib import Path

from infra.store import Artifact
from model.config import Model, Training
from tasks.stage import Facts, job_facts, run_job, stage


@stage(version=1, retries=3, resume=True)
def train(out: Path, shards: Artifact, dev: Artifact, vocabulary: Artifact, model: Model, training: Training) -> Facts:
    """Train a Transformer (§3) on the shards, watching the perplexity of the dev set."""
    inputs = {"shards": shards.path(), "dev": dev.path(), "vocabulary": vocabulary.path()}
    run_job("model.train", {"model": asdict(model), "training": asdict(training)}, inputs, out, distributed=True)
    return job_facts(out)
