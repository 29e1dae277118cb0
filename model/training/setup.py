"""Assembles a Trainer from a job: data, model, optimizer, loss, hardware, and the checkpoint to resume from."""

from dataclasses import replace
from functools import partial

import numpy as np
import torch

from ..config import Model, Training, check_compatible, from_json
from ..data.batches import BatchSampler, Cursor, check_lengths
from ..data.bpe import TokenizerPair
from ..data.shards import Shards
from ..job import Job
from ..network.attention import PackedAttention
from ..network.transformer import Transformer
from ..network.weights import build, load_weights
from ..numerics import autocast, configure_numerics, configure_training
from .checkpoint import CheckpointPolicy, Checkpoints
from .coverage import CoverageLoss
from .distributed import Ranks
from .flops import Work, peak_flops, training_flops
from .hardware import HardwareMonitor, device_name
from .loss import Objective
from .metrics import MetricsLogger
from .optimizer import WeightAverage, optimizer_of
from .position import Position
from .step import TrainingStep, UpdateReader
from .strict import StrictReader, StrictStep
from .trainer import Trainer
from .validation import Validation


def build_trainer(
    job: Job,
    ranks: Ranks,
    step_class: type[TrainingStep] | None = None,
    packed_attention: PackedAttention | None = None,
) -> Trainer:
    """The trainer of a job, at the position of its newest whole checkpoint.

    ``step_class`` and ``packed_attention`` replace how an update is computed, and torch's attention over packed
    sentences (``model.train.trainer_for``).
    Raises JobError for inputs that are missing or damaged, ValueError for a configuration that this device cannot run.
    """
    site = job.site
    device = site.torch_device()
    config = from_json(Model, job.config["model"])
    training = from_json(Training, job.config["training"])
    check_compatible(config, training)
    configure_numerics(training.numerics, site)
    vocabulary = TokenizerPair.load(job.inputs["vocabulary"])
    shards = load_shards(job, "shards", config, vocabulary)
    dev = load_shards(job, "dev", config, vocabulary)
    sampler = sampler_of(config, training, shards)
    if training.epochs:
        training = replace(training, epochs=0, updates=sampler.updates_of(training.epochs))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    configure_training(config, training, device, own_attention=packed_attention is not None)
    torch.manual_seed(training.seed)
    model = build(config, vocabulary.source_size, vocabulary.target_size).to(device)
    model.residual_dtype = torch.bfloat16 if training.residual == "bf16" else None
    model.packed_attention = packed_attention
    optimizer = optimizer_of(training, model)
    passes = 2 if training.r_drop else 1
    flops = passes * training_flops(config, vocabulary.target_size, sampler.source, sampler.target)
    work = Work(flops / float(sampler.target.sum()), peak_flops(device_name(device)))
    metrics = MetricsLogger(job, training.updates, ranks.is_main, work.mfu(ranks.world_size))
    ema = WeightAverage(model, training.ema) if training.ema else None
    checkpoints = Checkpoints(job.out, CheckpointPolicy(training, site.resume_seconds), ema)
    position = resume(checkpoints, model, optimizer, metrics, ranks)
    if not position.update and "start" in job.inputs:
        load_weights(model, job.inputs["start"])
        if ema:
            ema.load(model.state_dict())
    hardware = HardwareMonitor(device, position.gpu_kwh)
    objective = build_objective(job, model, training, sampler.packed)
    strict = training.numerics == "strict"
    if step_class is None:
        step_class = StrictStep if strict else TrainingStep
    step = step_class(training, objective, optimizer, ranks, device, site.micro_batch_tokens)
    precision = partial(autocast, training, device)
    validation = Validation(dev, ranks, device, precision, vocabulary, training.dev_bleu, config.source_ends)
    reader = (StrictReader if strict else UpdateReader)(sampler, ranks, device, site.micro_batch_tokens)
    if ranks.wrapped:
        # After its first backward pass DDP rearranges the gradients, and over three or more ranks their layout decides
        # how sums round. With that pass done, a resumed training rounds as an uninterrupted one does.
        step.compute_gradients(reader.read(np.zeros(1, np.int64), Cursor()))
    if ranks.is_main:
        checkpoints.remove_after(position.update)
    return Trainer(training, ranks, reader, step, validation, checkpoints, metrics, hardware, work, position, job.out)


def sampler_of(config: Model, training: Training, shards: Shards) -> BatchSampler:
    """The batches of a training."""
    return BatchSampler(
        shards,
        training.batch_tokens,
        training.seed,
        training.batching,
        training.mixture,
        training.batch_sentences,
        config.source_ends,
    )


def load_shards(job: Job, name: str, config: Model, vocabulary: TokenizerPair) -> Shards:
    """Open an input folder of shards. Raises JobError where a pair fits neither vocabulary nor positions."""
    shards = Shards(job.inputs[name])
    check_lengths(shards, config)
    shards.check_pieces("source", vocabulary.source_size)
    shards.check_pieces("target", vocabulary.target_size)
    return shards


def resume(
    checkpoints: Checkpoints,
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    metrics: MetricsLogger,
    ranks: Ranks,
) -> Position:
    """Load the main rank's newest whole checkpoint. Raises JobError where another rank does not find it."""
    position = checkpoints.resume(model, optimizer, metrics.log_damaged) if ranks.is_main else Position()
    update = ranks.broadcast(position.update)
    return position if ranks.is_main or not update else checkpoints.load(update, model, optimizer)


def build_objective(job: Job, model: Transformer, training: Training, packed: bool) -> Objective:
    """The loss over the model, with its layers compiled where ``site.compile`` says so."""
    compiled = job.site.compile == "always" or (job.site.compile == "auto" and job.site.torch_device().type == "cuda")
    coverage = None
    if training.attention_coverage_encoder or training.attention_coverage_cross:
        coverage = CoverageLoss(model, training.attention_coverage_encoder, training.attention_coverage_cross)
        compiled = False  # the compiler does not see its hooks
    if compiled:
        for layer in (*model.encoder, *model.decoder):
            # Packed batches have one shape; for another the compiler switches to dynamic shapes by itself.
            layer.compile(dynamic=None if packed else True)
    return Objective(model, training.label_smoothing, coverage, compiled, training.r_drop)
