"""Saves and loads checkpoints: the files that a training resumes from.

    checkpoints/<update, 8 digits>/model.safetensors   weights
                                  /state.safetensors   Adam's moments
                                  /position.json       the Position, and the SHA-256 checksums of the files above

A checkpoint is written to another folder, which is renamed when complete. A finished training keeps the weights to
average and all files of the last update, from which a longer training can continue. With ``training.patience`` it also
keeps

    checkpoints/best.json                              {"update", "dev_perplexity"}
               /best/model.safetensors                 the weights of that update, unless they are to be averaged
"""

import errno
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..config import Training
from ..errors import JobError, bad_data
from ..metric_names import DEV_PERPLEXITY
from ..network.transformer import Transformer
from ..network.weights import WEIGHTS, load_tensors, load_weights, save_tensors, sha256, sync
from .position import Position

STATE = "state.safetensors"
POSITION = "position.json"
MOMENTS = ("first", "second")
BEST = "best"
DAMAGE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EIO)
"""Errors of a damaged checkpoint. Others say nothing about it: a network disk is away, or resources are short."""
SAVE_INTERVAL_FACTOR = 100
"""A checkpoint that only resuming needs is saved at least this many times the last save's duration after it."""


class CheckpointPolicy:
    """Decides when to save a checkpoint and which checkpoints are averaged.

    Saves every ``training.checkpoint_every`` updates, at each best validation, and for resuming every
    ``resume_seconds``; averages the last ``training.keep`` of the first kind."""

    def __init__(self, training: Training, resume_seconds: float = 60.0) -> None:
        self.training = training
        self.resume_seconds = resume_seconds
        self.last = training.updates
        """The last update; less than ``training.updates`` if patience or the minutes end the training."""
        self.saved_at = time.monotonic()
        self.save_seconds = 0.0

    def is_due(self, position: Position) -> bool:
        """Whether to save a checkpoint at this position."""
        update = position.update
        elapsed = time.monotonic() - self.saved_at
        averageable = self.is_averageable(update)
        among_last = update > self.last - self.training.keep * self.training.checkpoint_every
        # With patience or minutes, any update can be one of the last.
        if (averageable and (self.training.may_end_early or among_last)) or update == position.best_update:
            return True
        due = averageable or elapsed > self.resume_seconds
        return due and (not self.resume_seconds or elapsed >= SAVE_INTERVAL_FACTOR * self.save_seconds)

    def record_save(self, started: float) -> None:
        """Record that a save is complete that began at ``started`` (monotonic clock)."""
        self.saved_at = time.monotonic()
        self.save_seconds = self.saved_at - started

    def is_averageable(self, update: int) -> bool:
        """Whether averaging can use a checkpoint of this update; it uses the last ``keep`` of these."""
        return update % self.training.checkpoint_every == 0 or update == self.last

    def averaged(self, updates: Sequence[int]) -> list[int]:
        """Return the saved ``updates`` that averaging uses."""
        return [update for update in updates if self.is_averageable(update)][-self.training.keep :]


class Checkpoints:
    """The checkpoints of one training.

    It keeps the checkpoints that the policy averages, and the two newest for resuming, each with the checkpoint that
    was the best at its time.
    """

    def __init__(self, out: Path, policy: CheckpointPolicy) -> None:
        self.folder = out / "checkpoints"
        self.policy = policy
        self.folder.mkdir(parents=True, exist_ok=True)
        for partial in self.folder.glob("*.partial"):
            shutil.rmtree(partial, ignore_errors=True)

    def updates(self) -> list[int]:
        """Return the updates that have a checkpoint, oldest first."""
        return sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdigit())

    def path(self, update: int) -> Path:
        return self.folder / f"{update:08d}"

    def save(self, model: Transformer, optimizer: torch.optim.Optimizer, position: Position) -> None:
        """Write a checkpoint, then remove the obsolete ones. If the disk is full, the older ones stay unchanged."""
        whole = self.path(position.update)
        partial = whole.with_suffix(".partial")
        try:
            partial.mkdir()
            save_tensors(partial / WEIGHTS, model.state_dict())
            save_tensors(partial / STATE, moments(model, optimizer))
            sums = {path.name: sha256(path) for path in sorted(partial.iterdir(), reverse=True)}
            record = {"position": asdict(position), "sums": sums}
            (partial / POSITION).write_text(json.dumps(record | {"sum": checksum(record)}))
            for path in (*partial.iterdir(), partial):
                sync(path)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        if whole.exists():
            shutil.rmtree(whole)
        partial.rename(whole)
        sync(self.folder)  # remove older checkpoints only when this one would survive a loss of power
        self.prune()

    def prune(self) -> None:
        updates = self.updates()
        kept = {*self.policy.averaged(updates), *(best_update_at(self.path(update)) for update in updates[-2:])}
        for update in updates[:-2]:
            if update in kept:
                (self.path(update) / STATE).unlink(missing_ok=True)
            else:
                shutil.rmtree(self.path(update))

    def resume(
        self, model: Transformer, optimizer: torch.optim.Optimizer, damaged: Callable[[int, str], None]
    ) -> Position:
        """Load the newest undamaged checkpoint into ``model`` and ``optimizer``; without one, return ``Position()``.

        Calls ``damaged`` with the update of each newer damaged checkpoint and a sentence about it.
        """
        for update in reversed(self.updates()):
            try:
                return self.load(update, model, optimizer)
            except JobError as error:
                damaged(update, f"checkpoint of update {update} skipped: {error}")
        return Position()

    def remove_after(self, update: int) -> None:
        """Remove checkpoints newer than ``update``, from which the training resumes."""
        for newer in self.updates():
            if newer > update:
                shutil.rmtree(self.path(newer))

    def write_best(self, position: Position) -> None:
        """Write ``best.json``; ``finish`` then keeps the best checkpoint too."""
        partial = self.folder / f"{BEST}.json.partial"
        best = {"update": position.best_update, DEV_PERPLEXITY: position.best_dev_perplexity}
        partial.write_text(json.dumps(best) + "\n")
        sync(partial)
        partial.replace(self.folder / f"{BEST}.json")

    def finish(self) -> None:
        """Remove all except the last checkpoint, the weights to average and the best. Can be repeated after a kill."""
        averaged = self.policy.averaged(self.updates())
        best_folder = self.folder / BEST
        if (self.folder / f"{BEST}.json").exists() and not best_folder.exists():
            best = read_best_update(self.folder)
            if best not in averaged:
                self.path(best).rename(best_folder)
        for update in set(self.updates()).difference(averaged):
            shutil.rmtree(self.path(update))
        for folder in (best_folder, *(self.path(update) for update in averaged if update != self.policy.last)):
            for name in (STATE, POSITION):
                (folder / name).unlink(missing_ok=True)

    def load(self, update: int, model: Transformer, optimizer: torch.optim.Optimizer) -> Position:
        """Load the checkpoint of an update. Raises JobError if it is damaged or incomplete."""
        folder = self.path(update)
        try:
            record = json.loads((folder / POSITION).read_text())
            if checksum({name: record[name] for name in ("position", "sums")}) != record["sum"]:
                raise bad_data(f"{folder / POSITION} has changed since it was written")
            for name, expected in record["sums"].items():
                if sha256(folder / name) != expected:
                    raise bad_data(f"{folder / name} has changed since it was written")
            known = {each.name for each in fields(Position)}  # earlier releases counted more
            position = Position(**{name: value for name, value in record["position"].items() if name in known})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, OSError) and error.errno not in DAMAGE:
                raise
            raise bad_data(f"{folder} is incomplete: {error}") from error
        load_weights(model, folder)
        state = load_tensors(folder / STATE)
        missing = [name for name, _ in model.named_parameters() if not all(f"{key}/{name}" in state for key in MOMENTS)]
        if missing:
            raise bad_data(f"{folder / STATE} has no moments of {missing[0]}")
        for name, parameter in model.named_parameters():
            # Copied into tensors that torch allocates: the rounding of a sum may depend on the alignment of memory.
            first, second = (torch.zeros_like(parameter).copy_(state[f"{key}/{name}"]) for key in MOMENTS)
            step = torch.tensor(float(position.update), device=parameter.device)
            optimizer.state[parameter] = {"step": step, "exp_avg": first, "exp_avg_sq": second}
        return position


def best_update_at(folder: Path) -> int:
    """Return the best update in a checkpoint's position; 0 if there is none or the position cannot be read."""
    try:
        return int(json.loads((folder / POSITION).read_text())["position"]["best_update"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def read_best_update(folder: Path) -> int:
    """Return the best update of a training's ``checkpoints`` folder. Raises JobError if none is recorded."""
    path = folder / f"{BEST}.json"
    try:
        return int(json.loads(path.read_text())["update"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise bad_data(f"{path} names no best checkpoint: {error}") from error


def moments(model: Transformer, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return Adam's two moments of every parameter, by name. Adam's step count is the number of updates."""
    state = optimizer.state
    return {
        f"{key}/{name}": state[parameter][field] if parameter in state else torch.zeros_like(parameter)
        for name, parameter in model.named_parameters()
        for key, field in zip(MOMENTS, ("exp_avg", "exp_avg_sq"), strict=True)
    }


def checksum(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
