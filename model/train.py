"""The training job: shards to checkpoints. ``python -m model.train job.json``, alone or under torchrun.

    inputs  shards/ *.arrow, dev/ *.arrow, vocabulary/ tokenizer.json (tokenizer.target.json),
            start/ model.safetensors (optional: the weights that update 1 finds)
    config  {"model": Model, "training": Training}
    out     checkpoints/<update>/model.safetensors, model.json (written last), metrics.jsonl, exit.json

Started again over the same folder it goes on from the newest whole checkpoint, to the very same weights: which pairs
and which random numbers make an update is a function of seed, update and rank. It knows nothing of text.
"""

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import islice

import numpy as np
import torch
from torch import nn

from model.batches import Place, Plan, check_lengths, load
from model.bpe import Pieces
from model.build import build
from model.checkpoint import SHAPE, Checkpoints, load_weights, save_shape
from model.config import Model, Training, from_json
from model.endings import BadConfiguration, Preempted
from model.job import Facts, Job, StopSignal, main
from model.objective import Objective
from model.optimizer import optimizer_of
from model.progress import Losses, Progress, facts_of
from model.ranks import Ranks
from model.schedule import learning_rate
from model.shards import Array, Shards
from model.validation import Validation


def work(job: Job) -> Facts:
    """Train to the last update; returns updates, dev_perplexity, target_tokens, seconds and parameters."""
    stop = StopSignal()
    if (job.out / SHAPE).exists():  # all is trained; what only served to go on may still lie there
        training = from_json(Training, job.config["training"])
        Checkpoints(job.out, training.checkpoint_every, training.keep, training.updates).finish()
        return facts_of(job.out)
    with Ranks.joined(job.site.rank_timeout_seconds) as ranks:
        trainer = Trainer(job, ranks)
        trainer.run(stop)
        return trainer.finish()


class Trainer:
    """All that a training holds; ``run`` is the loop."""

    def __init__(self, job: Job, ranks: Ranks) -> None:
        self.job, self.ranks, self.device = job, ranks, job.site.torch_device()
        self.training = from_json(Training, job.config["training"])
        config = from_json(Model, job.config["model"])
        vocabulary = Pieces.load(job.inputs["vocabulary"])
        source_size, target_size = vocabulary.source_size, vocabulary.target_size
        self.shards, self.dev = Shards(job.inputs["shards"]), Shards(job.inputs["dev"])
        for shards in (self.shards, self.dev):
            check_lengths(shards, config)
            shards.check_pieces("source", source_size)
            shards.check_pieces("target", target_size)
        self.plan = Plan(self.shards, self.training.batch_tokens, self.training.seed)

        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        settle_products(self.training.precision, self.device)
        torch.manual_seed(self.training.seed)
        self.model = build(config, source_size, target_size).to(self.device)
        self.optimizer = optimizer_of(self.training, self.model)
        self.progress = Progress(job, self.training.updates, ranks.leads)
        self.checkpoints = Checkpoints(
            job.out, self.training.checkpoint_every, self.training.keep, self.training.updates
        )
        self.position = self.checkpoints.resume(self.model, self.optimizer, self.progress.damaged)
        if not self.position.update and "start" in job.inputs:
            load_weights(self.model, job.inputs["start"])
        self.progress.last_saved = self.position.update
        self.begun, self.saved = time.monotonic() - self.position.seconds, time.monotonic()
        if job.site.compile:
            for layer in (*self.model.encoder, *self.model.decoder):
                layer.compile(dynamic=True)
        self.objective = Objective(self.model, self.training.label_smoothing)
        self.wrapped = ranks.wrap(self.objective)
        self.validation = Validation(self.dev, ranks, self.device, self.precision)
        if ranks.size > 1:
            # After its first backward DDP lays the gradients out anew, and sums over three or more ranks round by
            # layout: with that pass behind it a resumed training rounds as an uninterrupted one does.
            self.gradients(np.zeros(1, np.int64))
        if ranks.leads:
            self.checkpoints.remove_after(self.position.update)

    def run(self, stop: StopSignal) -> None:
        """The loop (§5). Raises Preempted once a stop is asked for and a checkpoint written."""
        for rows, place in islice(
            self.plan.after(Place(self.position.epoch, self.position.batch)),
            self.training.updates - self.position.update,
        ):
            update = self.position.update + 1
            rate = learning_rate(self.training, self.model.config.d_model, update)
            torch.manual_seed(dropout_seed(self.training.seed, update, self.ranks.rank))
            self.optimizer.zero_grad()
            losses = self.gradients(rows)
            if self.training.clip_norm:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.training.clip_norm)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.optimizer.step()
            self.advance(place, int(self.plan.target[rows].sum()))

            self.progress.note(update, rate, losses, self.position.target_tokens, self.gradient_norm)
            if update % self.training.dev_every == 0:
                self.validate()
            stopped = self.ranks.any(stop.came)
            if stopped or self.is_time_to_save():
                self.save()
            if stopped and update < self.training.updates:
                raise Preempted(f"asked to end; update {update} of {self.training.updates} is saved")

    def gradients(self, rows: Array) -> Losses:
        """Gradients of the mean loss over all target pieces of a batch, however ranks and parts cut it."""
        pieces = int(self.plan.target[rows].sum())
        mine = self.plan.share(rows, self.ranks.rank, self.ranks.size)
        parts = self.plan.parts(mine, self.job.site.micro_batch_tokens)
        losses = Losses(self.device)
        for i, part in enumerate(parts):
            batch = load(self.shards, part)
            with self.apart() if i < len(parts) - 1 else nullcontext():
                with self.precision():
                    loss, nll = self.wrapped(*batch.to(self.device))
                # DDP takes the mean over ranks where the sum is wanted.
                (loss * (self.ranks.size / pieces)).backward()
            losses.add(loss, nll, batch)
        return losses

    def apart(self) -> AbstractContextManager[None]:
        """Gradients inside stay on their rank: the last part of an update sums them all."""
        if isinstance(self.wrapped, nn.parallel.DistributedDataParallel):
            apart: AbstractContextManager[None] = self.wrapped.no_sync()
            return apart
        return nullcontext()

    def precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.training.precision == "bf16")

    def gradient_norm(self) -> float:
        """Norm of the update's gradients (after clipping); waits for the device."""
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        return float(torch.nn.utils.get_total_norm(gradients))

    def advance(self, place: Place, tokens: int) -> None:
        self.position = replace(
            self.position,
            update=self.position.update + 1,
            epoch=place.epoch,
            batch=place.batch,
            target_tokens=self.position.target_tokens + tokens,
            seconds=time.monotonic() - self.begun,
        )

    def validate(self) -> None:
        """Ask the dev set."""
        values = self.validation.check(self.objective)
        self.position = replace(self.position, dev_perplexity=values["dev_perplexity"])
        self.progress.write(self.position.update, values)

    def is_time_to_save(self) -> bool:
        late = time.monotonic() - self.saved > self.job.site.resume_seconds
        return late or self.checkpoints.is_kept(self.position.update)

    def save(self) -> None:
        """Write a checkpoint, of finite weights only."""
        if not self.ranks.leads:
            return
        self.progress.check()
        if not all(bool(p.isfinite().all()) for p in self.model.parameters()):
            raise self.progress.diverged("gradient", self.position.update, self.optimizer.param_groups[0]["lr"])
        self.checkpoints.save(self.model, self.optimizer, self.position)
        self.saved, self.progress.last_saved = time.monotonic(), self.position.update

    def finish(self) -> Facts:
        """Leave weights only, and the facts."""
        if self.training.updates % self.training.dev_every:
            self.validate()
        facts = {
            "updates": self.training.updates,
            "dev_perplexity": self.position.dev_perplexity,
            "target_tokens": self.position.target_tokens,
            "seconds": self.position.seconds,
            "parameters": sum(p.numel() for p in self.model.parameters()),
        }
        if self.ranks.leads:
            self.progress.end(facts)
            save_shape(self.job.out, self.model)
            self.checkpoints.finish()
        return facts


def settle_products(precision: str, device: torch.device) -> None:
    """How float32 matrices are multiplied: exactly, or in TF32. Raises BadConfiguration for TF32 without a GPU."""
    if precision == "tf32" and device.type != "cuda":
        raise BadConfiguration("training.precision is 'tf32', which needs a GPU; allowed on a CPU is fp32 or bf16")
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")


def dropout_seed(seed: int, update: int, rank: int) -> int:
    """A seed for the random numbers of one update on one rank."""
    return int(np.random.SeedSequence([seed, update, rank]).generate_state(1, np.uint64)[0])


if __name__ == "__main__":
    main(work)
