"""Assembles a Trainer from a job: data, model, optimizer, loss, device, and the checkpoint to resume from."""

from dataclasses import replace

import numpy as np
import torch

from ..config import Model, TargetEnds, Training, check_compatible, from_json, supports_varlen_attention
from ..config.keying import require
from ..data.batches import BatchSampler, Cursor, check_lengths
from ..data.bpe import TokenizerPair
from ..data.shards import Shards
from ..errors import bad_data
from ..job import Job
from ..network.attention import PackedAttention
from ..network.transformer import Transformer
from ..network.weights import build, load_weights
from ..numerics import configure_numerics, configure_precision
from .checkpoint import CheckpointPolicy, Checkpoints
from .coverage import CoverageLoss
from .distributed import Ranks
from .flops import Work, peak_flops, training_flops
from .loss import Objective
from .metrics import MetricsLogger
from .optimizer import optimizer_of
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
    """Build the trainer of a job, at the position of its newest undamaged checkpoint.

    ``step_class`` replaces the class that computes an update; ``packed_attention`` replaces torch's attention over
    packed sentences. Raises JobError for missing or damaged inputs, ValueError if this device does not support a
    setting.
    """
    config, training = read_configuration(job)
    device = prepare_device(job, config, training)
    vocabulary = TokenizerPair.load(job.inputs["vocabulary"])
    shards = load_shards(job, "shards", config, vocabulary, training.target_ends)
    sampler = sampler_of(config, training, shards)
    dev = load_shards(job, "dev", config, vocabulary)
    training = count_updates(training, sampler)
    model = new_model(config, training, (vocabulary.source_size, vocabulary.target_size), device, packed_attention)
    optimizer = optimizer_of(training, model)
    flops = training_flops(config, vocabulary.target_size, sampler.source, sampler.target)
    peak = peak_flops(torch.cuda.get_device_name(device)) if device.type == "cuda" else 0.0
    work = Work(flops / float(sampler.target.sum()), peak)
    metrics = MetricsLogger(job, training.updates, ranks.is_main, work.mfu(ranks.world_size))
    checkpoints = Checkpoints(job.out, CheckpointPolicy(training, job.site.resume_seconds))
    position = load_position(job, checkpoints, model, optimizer, metrics, ranks)
    objective = build_objective(job, model, training)
    strict = training.numerics == "strict"
    step_class = step_class or (StrictStep if strict else TrainingStep)
    reader_class = StrictReader if strict else UpdateReader
    step = step_class(training, objective, optimizer, ranks, device, job.site.micro_batch_tokens)
    reader = reader_class(sampler, ranks, device, job.site.micro_batch_tokens)
    if ranks.wrapped:
        # DDP rearranges the gradients after its first backward pass. With three or more ranks, the rounding of sums
        # depends on this arrangement. After this pass a resumed training rounds like an uninterrupted one.
        step.compute_gradients(reader.read(np.zeros(1, np.int64), Cursor()))
    validation = Validation(dev, ranks, device, training, vocabulary, config.source_ends)
    return Trainer(training, ranks, reader, step, validation, checkpoints, metrics, work, position, job.out)


def read_configuration(job: Job) -> tuple[Model, Training]:
    """Return the job's model and training. Raises ValueError if the training does not support the model."""
    config = from_json(Model, job.config["model"])
    training = from_json(Training, job.config["training"])
    check_compatible(config, training)
    return config, training


def prepare_device(job: Job, config: Model, training: Training) -> torch.device:
    """Choose the kernels of this process, and return the device of this rank. Call it before any computation.

    Raises ValueError if the device does not support a setting.
    """
    device = job.site.torch_device()
    configure_numerics(training.numerics, job.site)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    precision = training.precision
    configure_precision("training.precision", precision, device)
    if device.type == "cuda" and training.batching == "packed":
        require(precision == "bf16", "training.precision", precision, "bf16 where training.batching is packed on a GPU")
        p_drop = config.p_drop_attention
        allowed = "0 where training.batching is packed on a GPU"
        require(job.site.packed_attention == "own" or not p_drop, "model.p_drop_attention", p_drop, allowed)
        allowed = "buckets on a GPU unless model.d_k = model.d_v, a multiple of 8 up to 256"
        require(supports_varlen_attention(config), "training.batching", training.batching, allowed)
    return device


def load_shards(
    job: Job, name: str, config: Model, vocabulary: TokenizerPair, target_ends: TargetEnds = "eos"
) -> Shards:
    """Open an input folder of shards. Raises JobError if a pair does not fit the vocabulary or the positions."""
    shards = Shards(job.inputs[name])
    check_lengths(shards, config, target_ends)
    shards.check_pieces("source", vocabulary.source_size)
    shards.check_pieces("target", vocabulary.target_size)
    return shards


def sampler_of(config: Model, training: Training, shards: Shards) -> BatchSampler:
    return BatchSampler(
        shards,
        training.batch_tokens,
        training.seed,
        training.batching,
        training.batch_sentences,
        config.source_ends,
        training.target_ends,
    )


def count_updates(training: Training, sampler: BatchSampler) -> Training:
    """Convert the training's numbers of epochs to numbers of updates and checkpoints by counting batches."""
    if training.epochs:
        training = replace(training, epochs=0, updates=sampler.updates_of(training.epochs))
    if training.warmup_epochs:
        training = replace(training, warmup_epochs=0, warmup=sampler.updates_of(training.warmup_epochs))
    if training.keep_epochs:
        policy = CheckpointPolicy(training)
        begin = sampler.epoch_begins(training.updates)[-training.keep_epochs :][0]
        kept = sum(policy.is_averageable(update) for update in range(begin + 1, training.updates + 1))
        training = replace(training, keep_epochs=0, keep=kept)
    return training


def new_model(
    config: Model,
    training: Training,
    sizes: tuple[int, int],
    device: torch.device,
    packed_attention: PackedAttention | None = None,
) -> Transformer:
    """Build a model for vocabularies of these sizes, with initial weights from the seed."""
    torch.manual_seed(training.seed)
    model = build(config, *sizes).to(device)
    model.residual_dtype = torch.bfloat16 if training.residual == "bf16" else None
    model.packed_attention = packed_attention
    return model


def load_position(
    job: Job,
    checkpoints: Checkpoints,
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    metrics: MetricsLogger,
    ranks: Ranks,
) -> Position:
    """Load the main rank's newest undamaged checkpoint into model and optimizer, and remove newer ones.

    Without a checkpoint the training begins, with the weights of the input ``start`` if the job has it. Raises JobError
    if another rank does not find the checkpoint, or if a training that continues another has none.
    """
    position = checkpoints.resume(model, optimizer, metrics.log_damaged) if ranks.is_main else Position()
    update = ranks.broadcast(position.update)
    if update < (first := job.config.get("first_update", 0)):
        lost = f"no undamaged checkpoint of the training that this one continues after {first:,}"
        where = f"{checkpoints.folder} (with REPRO_LAUNCHER=ssh, its copy in the root of the run)"
        raise bad_data(f"{lost}: remove {where}")
    if update and not ranks.is_main:
        position = checkpoints.load(update, model, optimizer)
    if not update and "start" in job.inputs:
        load_weights(model, job.inputs["start"])
    if ranks.is_main:
        checkpoints.remove_after(update)
    return position


def build_objective(job: Job, model: Transformer, training: Training) -> Objective:
    """Build the loss over the model; compile the model's layers if ``site.compile`` requires it."""
    compiled = job.site.compile == "always" or (job.site.compile == "auto" and job.site.torch_device().type == "cuda")
    coverage = None
    if training.attention_coverage_encoder or training.attention_coverage_cross:
        coverage = CoverageLoss(model, training.attention_coverage_encoder, training.attention_coverage_cross)
        compiled = False  # torch.compile does not support the hooks of the coverage loss
    if compiled:
        for layer in (*model.encoder, *model.decoder):
            # Packed batches have one shape; if another shape occurs, torch.compile switches to dynamic shapes.
            layer.compile(dynamic=None if training.batching == "packed" else True)
    return Objective(model, training.label_smoothing, coverage, compiled)
