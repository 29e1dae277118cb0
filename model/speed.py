"""Measures the time of an update of a training on this machine, with random pairs: ``python -m model.speed job.json``.

config  {"model": Model, "training": Training, "vocabulary": pieces of a vocabulary, "length": pieces of a sentence}
out     exit.json with the facts ``seconds`` (of an update) and ``slowdown`` (factor due to other work on this machine)
"""

import time
from dataclasses import replace
from itertools import pairwise

import torch

from .data.batch import Batch
from .data.batches import Cursor, Update
from .job import Facts, Job, run_job
from .training.distributed import Ranks
from .training.optimizer import optimizer_of
from .training.setup import build_objective, new_model, prepare_device, read_configuration
from .training.step import TrainingStep

ENOUGH_SECONDS = 0.5
"""If an update of a part of a batch takes at least this time, its time is scaled to the whole batch."""
TIMED = 3


def work(job: Job) -> Facts:
    """Time updates of larger and larger parts of a batch, until one takes long enough or is the whole batch."""
    config, training = read_configuration(job)
    training = replace(training, batching="buckets", warmup=max(1, training.warmup), warmup_epochs=0)
    device = prepare_device(job, config, training)
    size = job.config["vocabulary"]
    model = new_model(config, training, (size, size), device)
    objective = build_objective(job, model, training)
    step = TrainingStep(training, objective, optimizer_of(training, model), Ranks(), device, micro_batch_tokens=0)
    length = job.config["length"]
    whole = training.batch_sentences or max(1, training.batch_tokens // length)
    sentences = min(whole, 16)
    while (times := _seconds(step, sentences, length, size))[0] < ENOUGH_SECONDS and sentences < whole:
        sentences = min(whole, 4 * sentences)
    seconds, computing = times
    slowdown = max(1.0, seconds / computing) if device.type == "cpu" else 1.0  # otherwise this thread only waits
    return {"seconds": seconds * whole / sentences, "slowdown": slowdown}


def _seconds(step: TrainingStep, sentences: int, length: int, size: int) -> tuple[float, float]:
    """Return the mean seconds of an update over pairs of ``length`` random pieces, and this thread's least computing.

    On an idle machine both are equal: this thread does not wait. Beside other work it may spin while it waits.
    """
    source, target, labels = torch.randint(3, size, (3, sentences, length))
    count = labels.numel()
    batch = Batch(source, target, labels.flatten(), torch.arange(count), None, 0, count)
    clocks = []
    for number in range(TIMED + 1):  # the first update also compiles and allocates
        step(Update([batch], count, Cursor()), number + 1)
        if step.device.type == "cuda":
            torch.cuda.synchronize()
        clocks.append((time.monotonic(), time.thread_time()))
    return (clocks[-1][0] - clocks[0][0]) / TIMED, min(after[1] - before[1] for before, after in pairwise(clocks))


if __name__ == "__main__":
    run_job(work)
