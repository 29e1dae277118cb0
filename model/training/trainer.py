"""The training loop (§5): update after update, with metrics, validation and checkpoints in between.

``model.training.setup`` assembles a Trainer; ``model.training.step`` computes an update.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from .. import metric_names as names
from ..config import Training
from ..data.batches import Cursor, Update
from ..data.prefetch import read_ahead
from ..errors import JobError
from ..job import Facts, StopSignal, seconds_since_launch
from ..network.weights import save_model_config, sync
from .checkpoint import Checkpoints
from .distributed import Ranks
from .flops import Work
from .hardware import cpu_kernels, memory_bytes
from .metrics import FACTS, LossSums, MetricsLogger
from .position import Position, after_validation, is_finished
from .step import TrainingStep, UpdateReader
from .validation import Validation


@dataclass
class Trainer:
    """A training at ``position``; ``run`` trains to the end, ``finish`` writes the results."""

    training: Training
    ranks: Ranks
    reader: UpdateReader
    step: TrainingStep
    validation: Validation
    checkpoints: Checkpoints
    metrics: MetricsLogger
    work: Work
    position: Position
    out: Path

    def __post_init__(self) -> None:
        before = seconds_since_launch() if self.training.minutes else 0.0
        self.started = time.monotonic() - before - self.position.seconds  # as if it had not been interrupted
        self.epochs_done = 0.0

    def run(self, stop: StopSignal) -> None:
        """Train to the last update, or until patience or the minutes are exhausted.

        Raises JobError: preempted after ``stop`` is received and a checkpoint is saved; diverged; out_of_memory.
        """
        self.metrics.start_clock(self.position.update, self.position.target_tokens)
        with read_ahead(self.updates) as updates:
            for batches in updates:
                self.update(batches, stop)
                if is_finished(self.training, self.position):
                    return

    def update(self, batches: Update, stop: StopSignal) -> None:
        """Do one update; then write metrics, validate, save or stop if due."""
        losses = self.train_step(batches)
        tokens = self.position.target_tokens
        self.metrics.record(self.position.update, self.step.learning_rate, losses, tokens, self.row_metrics)
        if self.position.update % self.training.dev_every == 0:
            self.validate()
        finished = is_finished(self.training, self.position)
        if finished:
            self.metrics.flush(tokens, self.hardware_metrics)
            self.checkpoints.policy.last = self.position.update
        stopped = self.ranks.any(stop.received)
        if stopped or self.checkpoints.policy.is_due(self.position):
            self.save()
        if stopped and not finished:
            self.ranks.any(False)  # waits until the main rank has saved
            update = self.position.update
            raise JobError("preempted", f"asked to end; update {update} of {self.training.updates} is saved")

    def updates(self) -> Iterator[Update]:
        """Read the batches of the remaining updates."""
        remaining = 0 if is_finished(self.training, self.position) else self.training.updates - self.position.update
        cursor = Cursor(self.position.epoch, self.position.batch)
        return self.reader.read_from(cursor, remaining)

    def train_step(self, batches: Update) -> LossSums:
        """Compute the next update and advance ``position``."""
        self.step.seconds = self.position.seconds
        losses = self.step(batches, self.position.update + 1)
        self.advance_position(batches)
        return losses

    def advance_position(self, batches: Update) -> None:
        self.epochs_done = batches.next.epochs_done
        seconds = time.monotonic() - self.started
        if self.training.minutes:  # all ranks use the main rank's clock, which starts when the job is launched
            seconds = self.ranks.broadcast(round(1000 * seconds)) / 1000
        self.position = replace(
            self.position,
            update=self.position.update + 1,
            epoch=batches.next.epoch,
            batch=batches.next.batch,
            target_tokens=self.position.target_tokens + batches.pieces,
            seconds=seconds,
        )

    def row_metrics(self) -> dict[str, float]:
        """Return the metrics of a row other than the losses; waits for the device."""
        own = {names.GRADIENT_NORM: float(self.step.gradient_norm()), names.EPOCH: self.epochs_done}
        return own | self.hardware_metrics()

    def hardware_metrics(self) -> dict[str, float]:
        minutes = self.training.minutes
        left = {names.SECONDS_LEFT: max(0.0, 60 * minutes - self.position.seconds)} if minutes else {}
        return {names.MEMORY_BYTES: memory_bytes(self.step.device)} | left

    def validate(self) -> None:
        """Compute the dev metrics. Raises JobError (diverged) if the perplexity is NaN."""
        values = self.validation.check(self.step.objective)
        if math.isnan(values[names.DEV_PERPLEXITY]):
            self.metrics.check()
            raise self.metrics.diverged("the dev perplexity of", self.position.update, self.step.learning_rate)
        self.position = after_validation(self.training, self.position, values[names.DEV_PERPLEXITY])
        self.metrics.write(self.position.update, values)

    def save(self) -> None:
        """Save a checkpoint on the main rank. Raises JobError (diverged) if a weight is not finite."""
        if not self.ranks.is_main:
            return
        started = time.monotonic()
        self.metrics.check()
        if not all(bool(p.isfinite().all()) for p in self.step.model.parameters()):
            raise self.metrics.diverged("a weight after", self.position.update, self.step.learning_rate)
        self.checkpoints.save(self.step.model, self.step.optimizer, self.position)
        self.metrics.last_saved = self.position.update
        self.checkpoints.policy.record_save(started)

    def finish(self) -> Facts:
        """Remove files that only resuming needs, write ``model.json``, and return the facts."""
        if self.position.update % self.training.dev_every:
            self.validate()
        facts = self.facts()
        if self.ranks.is_main:
            self.metrics.write(self.metrics.total, {FACTS: facts})  # for a job that restarts after the training ended
            self.checkpoints.policy.last = self.position.update
            if self.training.patience:
                self.checkpoints.write_best(self.position)
            sync(self.out / "metrics.jsonl")
            self.checkpoints.finish()
            # With model.json the training counts as finished, also after a loss of power.
            save_model_config(self.out, self.step.model)
        return facts

    def facts(self) -> Facts:
        """Return the facts of the training (docs/files.md)."""
        position = self.position
        sampler = self.reader.sampler
        epoch_batches = len(sampler.epoch(position.epoch))
        epochs = Cursor(position.epoch, position.batch, epoch_batches).epochs_done
        facts: Facts = {
            names.UPDATES: position.update,
            names.DEV_PERPLEXITY: position.dev_perplexity,
            names.TARGET_TOKENS: position.target_tokens,
            names.FLOPS: self.work.flops_per_token * position.target_tokens,
            "seconds": position.seconds,
            names.PARAMETERS: sum(p.numel() for p in self.step.model.parameters()),
            "device": self.step.device.type,
            "ranks": self.ranks.world_size,
            names.EPOCHS: round(epochs, 4),
            names.EPOCH_BATCHES: epoch_batches,
            names.EPOCH_SOURCE_TOKENS: int(sampler.source.sum()),  # an epoch reads every pair once
            names.EPOCH_TARGET_TOKENS: int(sampler.target.sum()),
            names.EPOCH_MINUTES: round(position.seconds / 60 / epochs, 4),
        }
        if self.step.device.type == "cpu":
            facts["kernels"] = cpu_kernels()
        if self.step.micro_batch_tokens:
            facts["micro_batch_tokens"] = self.step.micro_batch_tokens
        if self.work.device_peak:
            facts[names.PEAK_FLOPS] = self.work.device_peak
        if self.training.patience:
            facts[names.BEST_UPDATE] = position.best_update
            facts[names.BEST_DEV_PERPLEXITY] = position.best_dev_perplexity
        if self.training.may_end_early:
            facts[names.STOPPED_EARLY] = position.update < self.training.updates
        return facts
