"""Trains a model on shards: one job under torchrun, which resumes from its newest complete checkpoint on a retry.

checkpoints/00004500/model.safetensors, …   the last ``training.keep`` of them
checkpoints/best.json, best/                with ``training.patience``: the one with the lowest dev perplexity
model.json  metrics.jsonl  exit.json  job.log

Beside the artifact it stores the state from which a longer training continues (``tasks.training.going_on``).
"""

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from infra.errors import JobFailed, Preempted
from infra.store.store import Artifact
from model.config import Model, Training
from tasks.engine.stage import Facts, JobRequest, current_stage, job_facts, stage
from tasks.reporting.remarks import ended_by_clock
from tasks.training.going_on import begin_from, keep_state, newest_checkpoint, origin_of


@stage(version=2, resume=True, needs="gpu", origin=origin_of)
def train(
    out: Path,
    shards: Artifact,
    dev: Artifact,
    vocabulary: Artifact,
    model: Model,
    training: Training,
    start: tuple[Artifact, ...] = (),
    continued: tuple[Artifact, ...] = (),  # noqa: ARG001 - the stage's origin
) -> Facts:
    """Train a Transformer (§3) on the shards, with validation by the perplexity of the dev set.

    ``start`` is empty, or holds the one artifact with the initial weights (``model.safetensors``); ``continued`` is
    empty, or holds the one finished training that this one continues.
    """
    inputs = {"shards": shards.path(), "dev": dev.path(), "vocabulary": vocabulary.path()}
    if start:
        inputs["start"] = start[0].path()
    config: dict[str, Any] = {"model": asdict(model), "training": asdict(training)}
    present = current_stage()
    if present.origin:
        begin_from(present.origin, out)
        config["first_update"] = present.origin.done
    job = JobRequest("model.train", config, inputs, out, distributed=True, numerics=training.numerics)
    because = ""
    while True:
        before = newest_checkpoint(out)
        begins = f"{because}{present.call.label} {f'resumes from update {before:,}' if before else 'begins'}"
        if before:
            present.say(begins)
        with (out / "job.log").open("a") as log:
            log.write(f"{datetime.now():%Y-%m-%d %H:%M:%S}  {begins}\n")
        try:
            present.run_job(job)
            keep_state(out, present.call.key)
            facts = job_facts(out)
            for remark in ended_by_clock(asdict(training), facts):
                present.say(remark)
            return facts
        except (JobFailed, Preempted) as error:
            # A job that left a newer checkpoint is relaunched without using one of the stage's retries.
            if newest_checkpoint(out) <= before:
                raise
            because = f"{error}; "
            present.failures.append(f"{error}")
