"""The training job: shards to checkpoints. ``python -m model.train job.json``, alone or under torchrun.

    inputs  shards/ *.arrow, dev/ *.arrow, vocabulary/ tokenizer.json (tokenizer.target.json),
            start/ model.safetensors (optional: the weights that update 1 finds)
    config  {"model": Model, "training": Training}
    out     checkpoints/<update>/model.safetensors, model.json (written last), metrics.jsonl, exit.json

Started again over the same folder with as many ranks it goes on from the newest whole checkpoint, to the very same
weights: which pairs and which random numbers make an update is a function of seed, update and rank. What another number
of ranks promises, ``model.training.distributed`` says. It knows nothing of text.
"""

import math
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn

from .config import Model, Training, check_compatible, from_json
from .data.batches import BatchSampler, Cursor, Update, check_lengths, out_of_memory_error
from .data.bpe import TokenizerPair
from .data.prefetch import read_ahead
from .data.shards import Array, Shards
from .errors import JobError
from .job import Facts, Job, StopSignal, is_out_of_memory, main
from .network.weights import MODEL_CONFIG, build, load_weights, save_model_config
from .training.checkpoint import Checkpoints
from .training.distributed import Ranks
from .training.flops import PEAKS, training_flops
from .training.hardware import HardwareMonitor, device_name, mfu
from .training.loss import Objective
from .training.metrics import LossSums, MetricsLogger, read_facts
from .training.optimizer import learning_rate, optimizer_of
from .training.position import Position, after_validation, is_finished
from .training.precision import configure_precision
from .training.validation import Validation

SAVE_INTERVAL_FACTOR = 100
"""A checkpoint that averaging will not read comes no sooner than this many times as long as the last one took."""


def work(job: Job) -> Facts:
    """Train to the last update, or until patience ends; returns the facts of ``Trainer.finish``."""
    stop = StopSignal()
    if (job.out / MODEL_CONFIG).exists():  # all is trained; what only served to go on may still lie there
        training = from_json(Training, job.config["training"])
        facts = read_facts(job.out)
        if os.environ.get("RANK", "0") == "0":
            Checkpoints(job.out, training.checkpoint_every, training.keep, facts["updates"]).finish()
        return facts
    with Ranks.join(job.site.rank_timeout_seconds) as ranks:
        trainer = Trainer(job, ranks)
        trainer.run(stop)
        return trainer.finish()


class Trainer:
    """All that a training holds; ``run`` is the loop."""

    def __init__(self, job: Job, ranks: Ranks) -> None:
        self.job, self.ranks, self.device = job, ranks, job.site.torch_device()
        self.training = from_json(Training, job.config["training"])
        config = from_json(Model, job.config["model"])
        check_compatible(config, self.training)
        vocabulary = TokenizerPair.load(job.inputs["vocabulary"])
        source_size, target_size = vocabulary.source_size, vocabulary.target_size
        self.shards, self.dev = Shards(job.inputs["shards"]), Shards(job.inputs["dev"])
        for shards in (self.shards, self.dev):
            check_lengths(shards, config)
            shards.check_pieces("source", source_size)
            shards.check_pieces("target", target_size)
        self.sampler = BatchSampler(self.shards, self.training.batch_tokens, self.training.seed, self.training.batching)

        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        configure_precision(config, self.training, self.device)
        torch.manual_seed(self.training.seed)
        self.model = build(config, source_size, target_size).to(self.device)
        self.optimizer = optimizer_of(self.training, self.model)
        piece = (
            training_flops(config, target_size, self.sampler.source, self.sampler.target) / self.sampler.target.sum()
        )
        per_token = mfu(float(piece) / ranks.world_size, device_name(self.device), PEAKS)
        self.progress = MetricsLogger(job, self.training.updates, ranks.is_main, per_token)
        self.checkpoints = Checkpoints(
            job.out, self.training.checkpoint_every, self.training.keep, self.training.updates
        )
        self.position = self.resume()
        if not self.position.update and "start" in job.inputs:
            load_weights(self.model, job.inputs["start"])
        self.hardware = HardwareMonitor(self.device, self.position.gpu_kwh)
        self.begun, self.last_save_time = time.monotonic() - self.position.seconds, time.monotonic()
        self.save_seconds = 0.0
        self.norm: Tensor | None = None
        compiled = job.site.compile == "always" or (job.site.compile == "auto" and self.device.type == "cuda")
        compiled = compiled and not self.training.attention_entropy  # its hooks are nothing for a compiler
        if compiled:
            for layer in (*self.model.encoder, *self.model.decoder):
                # Packed batches have one shape; should another come, the compiler finds out by itself.
                layer.compile(dynamic=None if self.sampler.packed else True)
        self.objective = Objective(
            self.model, self.training.label_smoothing, self.training.attention_entropy, compiled=compiled
        )
        self.ddp_objective = ranks.wrap(self.objective)
        self.validation = Validation(self.dev, ranks, self.device, self.precision, vocabulary, self.training.dev_bleu)
        if ranks.world_size > 1:
            # After its first backward DDP lays the gradients out anew, and sums over three or more ranks round by
            # layout: with that pass behind it a resumed training rounds as an uninterrupted one does.
            self.gradients(self.read(np.zeros(1, np.int64), Cursor()))
        if ranks.is_main:
            self.checkpoints.remove_after(self.position.update)

    def resume(self) -> Position:
        """Load the leading rank's newest whole checkpoint. Raises JobError where another rank does not find it."""
        position = Position()
        if self.ranks.is_main:
            position = self.checkpoints.resume(self.model, self.optimizer, self.progress.log_damaged)
        update = self.ranks.broadcast(position.update)
        return (
            position if self.ranks.is_main or not update else self.checkpoints.load(update, self.model, self.optimizer)
        )

    def run(self, stop: StopSignal) -> None:
        """The loop (§5). Raises JobError once a stop is asked for and a checkpoint written."""
        self.progress.begin(self.position.update, self.position.target_tokens)
        with read_ahead(self.updates) as updates:
            for batches in updates:
                self.update(batches, stop)
                if is_finished(self.training, self.position):
                    return

    def updates(self) -> Iterator[Update]:
        """What is left to train on, read."""
        left = 0 if is_finished(self.training, self.position) else self.training.updates - self.position.update
        for rows, cursor in islice(self.sampler.batches_from(Cursor(self.position.epoch, self.position.batch)), left):
            yield self.read(rows, cursor)

    def read(self, rows: Array, cursor: Cursor) -> Update:
        update = self.sampler.read(
            rows, cursor, self.ranks.rank, self.ranks.world_size, self.job.site.micro_batch_tokens
        )
        if self.device.type != "cuda":
            return update
        with torch.cuda.device(self.device):  # a thread does not inherit the device that was set
            return update.pin_memory()

    def update(self, batches: Update, stop: StopSignal) -> None:
        """One update, and what is due after it: a row of metrics, a dev check, a checkpoint, the end."""
        skipped, losses = self.position.skipped, self.train_step(batches)
        update, rate = self.position.update, self.optimizer.param_groups[0]["lr"]
        if self.position.skipped > skipped:
            self.progress.write(update, {"skipped": self.position.skipped})
        else:
            self.progress.record(update, rate, losses, self.position.target_tokens, self.row_metrics)
        if update % self.training.dev_every == 0:
            self.validate()
        over = is_finished(self.training, self.position)
        if over:
            self.progress.flush(self.position.target_tokens, self.hardware_metrics)
            self.checkpoints.last = update
        stopped = self.ranks.any(stop.received)
        if stopped or self.is_time_to_save():
            self.save()
        if stopped and not over:
            self.ranks.any(False)  # none says that it is saved before it is
            raise JobError("preempted", f"asked to end; update {update} of {self.training.updates} is saved")

    def train_step(self, batches: Update) -> LossSums:
        """Batch, loss, gradients, weights. Waits for the device only where updates may be passed over."""
        update = self.position.update + 1
        torch.manual_seed(dropout_seed(self.training.seed, update, self.ranks.rank))
        self.optimizer.zero_grad()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.training, self.model.config.d_model, update)
        losses = self.gradients_or_oom(batches)
        self.norm = None
        skipped = self.should_skip()
        if not skipped:
            if self.training.clip_norm:
                parameters = self.model.parameters()
                torch.nn.utils.clip_grads_with_norm_(parameters, self.training.clip_norm, self.gradient_norm())
            self.optimizer.step()
        self.advance_position(batches, skipped)
        return losses

    def gradients_or_oom(self, update: Update) -> LossSums:
        """``gradients``. Raises JobError naming the batch that did not fit into memory."""
        try:
            return self.gradients(update)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            raise out_of_memory_error(
                update, self.position.update + 1, self.job.site.micro_batch_tokens, error
            ) from error

    def should_skip(self) -> bool:
        """Whether the gradients are not finite and the update may be passed over. Raises JobError where too many were.

        The answer waits for the device: it is sought only where any may be passed over. Ranks hold the same sums.
        """
        if not self.training.skip_nonfinite or math.isfinite(float(self.gradient_norm())):
            return False
        if self.position.skipped == self.training.skip_nonfinite:
            self.progress.check()
            raise self.diverged("gradient", self.position.update + 1)
        return True

    def gradients(self, update: Update) -> LossSums:
        """Gradients of the mean loss over all target pieces of an update, however ranks and parts cut it."""
        losses = LossSums(self.device)
        for i, batch in enumerate(update.micro_batches):
            with self.no_sync() if i < len(update.micro_batches) - 1 else nullcontext():
                with self.precision():
                    loss, nll = self.ddp_objective(batch.to(self.device))
                # DDP takes the mean over ranks where the sum is wanted.
                (loss * (self.ranks.world_size / update.pieces)).backward()
            losses.add(loss, nll, batch)
        return losses

    def no_sync(self) -> AbstractContextManager[None]:
        """Gradients inside stay on their rank: the last part of an update sums them all."""
        if isinstance(self.ddp_objective, nn.parallel.DistributedDataParallel):
            context: AbstractContextManager[None] = self.ddp_objective.no_sync()
            return context
        return nullcontext()

    def precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.training.precision == "bf16")

    def gradient_norm(self) -> Tensor:
        """Norm of the update's gradients before clipping."""
        if self.norm is None:
            self.norm = torch.nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        return self.norm

    def row_metrics(self) -> dict[str, float]:
        """What a row of metrics says beside the losses; waits for the device."""
        return {"gradient_norm": float(self.gradient_norm())} | self.hardware_metrics()

    def hardware_metrics(self) -> dict[str, float]:
        skipped = {"skipped": self.position.skipped} if self.training.skip_nonfinite else {}
        return self.hardware.read() | skipped

    def advance_position(self, update: Update, skipped: bool) -> None:
        self.position = replace(
            self.position,
            update=self.position.update + 1,
            epoch=update.next.epoch,
            batch=update.next.batch,
            target_tokens=self.position.target_tokens + update.pieces,
            skipped=self.position.skipped + skipped,
            seconds=time.monotonic() - self.begun,
        )

    def validate(self) -> None:
        """Ask the dev set. Raises JobError where its perplexity is no number."""
        values = self.validation.check(self.objective)
        if math.isnan(values["dev_perplexity"]):
            self.progress.check()
            raise self.diverged("dev perplexity", self.position.update)
        self.position = after_validation(self.training, self.position, values["dev_perplexity"])
        self.progress.write(self.position.update, values)

    def is_time_to_save(self) -> bool:
        update, elapsed = self.position.update, time.monotonic() - self.last_save_time
        kept, every = self.checkpoints.is_kept(update), self.job.site.resume_seconds
        needed = kept and (self.training.patience > 0 or self.checkpoints.is_among_last(update))
        if needed or update == self.position.best_update:
            return True
        welcome = kept or elapsed > every
        return welcome and (not every or elapsed >= SAVE_INTERVAL_FACTOR * self.save_seconds)

    def save(self) -> None:
        """Write a checkpoint, of finite weights only."""
        if not self.ranks.is_main:
            return
        begun = time.monotonic()
        self.progress.check()
        if not all(bool(p.isfinite().all()) for p in self.model.parameters()):
            raise self.diverged("gradient", self.position.update)
        self.position = replace(self.position, gpu_kwh=self.hardware.gpus.kwh())
        self.checkpoints.save(self.model, self.optimizer, self.position)
        self.last_save_time, self.progress.last_saved = time.monotonic(), self.position.update
        self.save_seconds = self.last_save_time - begun

    def diverged(self, what: str, update: int) -> JobError:
        return self.progress.diverged(what, update, self.optimizer.param_groups[0]["lr"])

    def finish(self) -> Facts:
        """Leave weights only, and the facts: updates, dev_perplexity, target_tokens, seconds, parameters and the place.

        With patience also best_update, best_dev_perplexity, stopped_early; skipped and gpu_kwh where they are counted.
        """
        if self.position.update % self.training.dev_every:
            self.validate()
        facts: Facts = {
            "updates": self.position.update,
            "dev_perplexity": self.position.dev_perplexity,
            "target_tokens": self.position.target_tokens,
            "seconds": self.position.seconds,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "device": self.device.type,
            "ranks": self.ranks.world_size,
        }
        if self.training.patience:
            facts["best_update"] = self.position.best_update
            facts["best_dev_perplexity"] = self.position.best_dev_perplexity
            facts["stopped_early"] = self.position.update < self.training.updates
        if self.training.skip_nonfinite:
            facts["skipped"] = self.position.skipped
        if self.hardware.gpus.begun:
            facts["gpu_kwh"] = self.hardware.gpus.kwh()
        if self.ranks.is_main:
            self.progress.write_facts(facts)
            self.checkpoints.last = self.position.update
            if self.training.patience:
                self.checkpoints.write_best(self.position)
            save_model_config(self.job.out, self.model)
            self.checkpoints.finish()
        return facts


def dropout_seed(seed: int, update: int, rank: int) -> int:
    """A seed for the random numbers of one update on one rank."""
    return int(np.random.SeedSequence([seed, update, rank]).generate_state(1, np.uint64)[0])


if __name__ == "__main__":
    main(work)
