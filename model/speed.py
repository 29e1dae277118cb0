"""Measures how long an update of a training takes here: ``python -m model.speed job.json``, over made-up pairs.

config  {"model": Model, "training": Training, "vocabulary": pieces of a vocabulary, "length": pieces of a sentence}
out     exit.json with the facts ``seconds`` (of an update) and ``slowdown`` (by other work on this machine)
"""

import time
from dataclasses import replace

import torch

from .data.batch import Batch
from .data.batches import Cursor, Update
from .job import Facts, Job, job_of_command_line
from .training.distributed import Ranks
from .training.optimizer import optimizer_of
from .training.setup import build_objective, new_model, prepare_device, read_configuration
from .training.step import TrainingStep

ENOUGH_SECONDS = 0.5
"""An update of a part of a batch that takes so long tells the time of a whole one."""
TIMED = 3


def work(job: Job) -> Facts:
    """Time updates of growing parts of a batch, until one takes long enough or is the whole."""
    config, training = read_configuration(job)
    training = replace(training, batching="buckets")
    device = prepare_device(job, config, training, own_attention=False)
    size = job.config["vocabulary"]
    model = new_model(config, training, (size, size), device)
    objective = build_objective(job, model, training, packed=False)
    step = TrainingStep(training, objective, optimizer_of(training, model), Ranks(), device, micro_batch_tokens=0)
    length = job.config["length"]
    whole = max(1, training.batch_tokens // length)
    sentences = min(whole, 16)
    while (times := _seconds(step, sentences, length, size))[0] < ENOUGH_SECONDS and sentences < whole:
        sentences = min(whole, 4 * sentences)
    seconds, computing = times
    slowdown = max(1.0, seconds / computing) if device.type == "cpu" else 1.0  # else the device computes
    return {"seconds": seconds * whole / sentences, "slowdown": slowdown}


def _seconds(step: TrainingStep, sentences: int, length: int, size: int) -> tuple[float, float]:
    """Seconds of an update over pairs of ``length`` random pieces, the mean of some; those that this thread computes.

    An idle machine never lets it wait: the other threads have as much to do.
    """
    source, target, labels = torch.randint(3, size, (3, sentences, length))
    count = labels.numel()
    batch = Batch(source, target, labels.flatten(), torch.arange(count), None, 0, count)
    for number in range(TIMED + 1):
        step(Update([batch], count, Cursor()), number + 1)
        if step.device.type == "cuda":
            torch.cuda.synchronize()
        if number == 0:  # it compiles and allocates
            begin = time.monotonic()
            computed = time.thread_time()
    return (time.monotonic() - begin) / TIMED, (time.thread_time() - computed) / TIMED


if __name__ == "__main__":
    with job_of_command_line() as job:
        job.finish(work(job))
