"""Models and trainings as files.

A model: ``model.safetensors`` and ``model.json`` (the Model and its vocabulary sizes). A training can go on from

    checkpoints/<update, 8 digits>/model.safetensors   weights
                                  /state.safetensors   Adam's moments
                                  /position.json       where the training stood, and the sums of the two files above

Each is written beside and renamed when whole. At the end only the weights that are averaged stay and, where the best
by dev perplexity is sought,

    checkpoints/best.json                              {"update", "dev_perplexity"}
               /best/model.safetensors                 its weights, where they are not among those that are averaged
"""

import errno
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from model.build import build
from model.config import Model, from_json
from model.endings import BadData
from model.transformer import Transformer

WEIGHTS, SHAPE = "model.safetensors", "model.json"
STATE, POSITION = "state.safetensors", "position.json"
MOMENTS = ("first", "second")
BEST = "best"


def save_model(folder: Path, model: Transformer) -> None:
    """Write weights and shape; the same weights give the same bytes."""
    save_tensors(folder / WEIGHTS, model.state_dict())
    save_shape(folder, model)


def save_shape(folder: Path, model: Transformer) -> None:
    """Write ``model.json`` alone."""
    shape = {"model": asdict(model.config), "source_size": model.source_size, "target_size": model.target_size}
    beside = folder / f"{SHAPE}.partial"
    beside.write_text(json.dumps(shape, indent=1, sort_keys=True) + "\n")
    beside.replace(folder / SHAPE)


def load_model(folder: Path, device: torch.device | None = None) -> Transformer:
    """The model of a folder, in evaluation mode. Raises BadData where the files are not whole or do not fit."""
    try:
        shape = json.loads((folder / SHAPE).read_text())
        config = from_json(Model, shape["model"])
        model = build(config, int(shape["source_size"]), int(shape["target_size"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadData(f"{folder / SHAPE} describes no model: {error}") from error
    load_weights(model, folder)
    return model.to(device or torch.device("cpu")).eval()


def load_weights(model: Transformer, folder: Path) -> None:
    """Fill a model from a folder's weights. Raises BadData where they are missing, cut or of another shape."""
    try:
        model.load_state_dict(load_tensors(folder / WEIGHTS))
    except RuntimeError as error:
        raise BadData(f"{folder / WEIGHTS} is of another model: {str(error).splitlines()[-1].strip()[:200]}") from error


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """One safetensors file; the same tensors give the same bytes. Raises OSError as any writing does."""
    try:
        save_file({name: tensors[name].detach().cpu().contiguous() for name in sorted(tensors)}, path)
    except SafetensorError as error:
        # The library hides the system's error number in its text.
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]) if number else errno.EIO, str(error), str(path)) from error


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on the CPU. Raises BadData when it is missing, cut or no such file."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise BadData(f"{path} cannot be read: {error}") from error


@dataclass(frozen=True)
class Position:
    """Where a training stands after ``update``: all that is neither weight nor moment.

    Random numbers are no part of it: those of an update are a function of seed, update and rank.
    """

    update: int = 0
    epoch: int = 0
    batch: int = 0
    target_tokens: int = 0
    seconds: float = 0.0
    dev_perplexity: float = 0.0
    best_update: int = 0
    """Of the dev check with the lowest perplexity so far; 0 before the first, and where no best is sought."""
    best_dev_perplexity: float = 0.0
    checks_since_best: int = 0
    skipped: int = 0
    """Updates that were passed over, as their gradients were not finite."""
    gpu_kwh: float = 0.0


class Checkpoints:
    """The checkpoints of one training: the last ``keep`` at multiples of ``every`` and at ``last`` stay for averaging,
    and the two newest of all so that the training can go on, each with the best of its time."""

    def __init__(self, out: Path, every: int, keep: int, last: int) -> None:
        self.folder, self.every, self.keep, self.last = out / "checkpoints", every, keep, last
        self.folder.mkdir(parents=True, exist_ok=True)
        for torn in self.folder.glob("*.partial"):
            shutil.rmtree(torn, ignore_errors=True)

    def updates(self) -> list[int]:
        """Of which updates there are checkpoints, oldest first."""
        return sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdigit())

    def path(self, update: int) -> Path:
        return self.folder / f"{update:08d}"

    def is_among_last(self, update: int) -> bool:
        """Whether an update is so late that a checkpoint of it would be among those that stay."""
        return update > self.last - self.keep * self.every

    def is_kept(self, update: int) -> bool:
        """Whether a checkpoint is among those that are averaged (while it is one of the last)."""
        return update % self.every == 0 or update == self.last

    def save(self, model: Transformer, optimizer: torch.optim.Optimizer, position: Position) -> None:
        """Write a whole checkpoint, then let go of what it replaces. A full disk leaves the older ones as they are."""
        whole = self.path(position.update)
        torn = whole.with_suffix(".partial")
        try:
            torn.mkdir()
            save_tensors(torn / WEIGHTS, model.state_dict())
            save_tensors(torn / STATE, moments(model, optimizer))
            sums = {name: sha256(torn / name) for name in (WEIGHTS, STATE)}
            record = {"position": asdict(position), "sums": sums}
            (torn / POSITION).write_text(json.dumps(record | {"sum": sum_of(record)}))
        except BaseException:
            shutil.rmtree(torn, ignore_errors=True)
            raise
        if whole.exists():
            shutil.rmtree(whole)
        torn.rename(whole)
        self.prune()

    def prune(self) -> None:
        updates = self.updates()
        kept = {*self.averaged(), *(best_before(self.path(update)) for update in updates[-2:])}
        for update in updates[:-2]:
            if update in kept:
                (self.path(update) / STATE).unlink(missing_ok=True)
            else:
                shutil.rmtree(self.path(update))

    def averaged(self) -> list[int]:
        return [update for update in self.updates() if self.is_kept(update)][-self.keep :]

    def resume(
        self, model: Transformer, optimizer: torch.optim.Optimizer, damaged: Callable[[int, str], None]
    ) -> Position:
        """Load the newest whole checkpoint into ``model`` and ``optimizer``; the start where there is none.

        ``damaged`` is told of every newer one that is not whole: its update, and a sentence.
        """
        for update in reversed(self.updates()):
            try:
                return self.load(update, model, optimizer)
            except BadData as fault:
                damaged(update, f"checkpoint of update {update} passed over: {fault}")
        return Position()

    def remove_after(self, update: int) -> None:
        """Remove checkpoints newer than the one from which the training goes on."""
        for newer in self.updates():
            if newer > update:
                shutil.rmtree(self.path(newer))

    def name_best(self, position: Position) -> None:
        """Write which checkpoint is the best; ``finish`` then leaves it as well."""
        beside = self.folder / f"{BEST}.json.partial"
        best = {"update": position.best_update, "dev_perplexity": position.best_dev_perplexity}
        beside.write_text(json.dumps(best) + "\n")
        beside.replace(self.folder / f"{BEST}.json")

    def finish(self) -> None:
        """Leave only the weights to average, and the best. Cut short it can be done again."""
        averaged = self.averaged()
        apart = self.folder / BEST
        if (self.folder / f"{BEST}.json").exists() and not apart.exists():
            best = best_of(self.folder)
            if best not in averaged:
                self.path(best).rename(apart)
        for name in (STATE, POSITION):
            (apart / name).unlink(missing_ok=True)
        for update in self.updates():
            if update not in averaged:
                shutil.rmtree(self.path(update))
                continue
            for name in (STATE, POSITION):
                (self.path(update) / name).unlink(missing_ok=True)

    def load(self, update: int, model: Transformer, optimizer: torch.optim.Optimizer) -> Position:
        """Load the checkpoint of an update. Raises BadData where it is not whole."""
        folder = self.path(update)
        try:
            record = json.loads((folder / POSITION).read_text())
            if sum_of({name: record[name] for name in ("position", "sums")}) != record["sum"]:
                raise BadData(f"{folder / POSITION} is not what was written")
            for name, expected in record["sums"].items():
                if sha256(folder / name) != expected:
                    raise BadData(f"{folder / name} is not what was written")
            position = from_json(Position, record["position"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadData(f"{folder} is not whole: {error}") from error
        load_weights(model, folder)
        state = load_tensors(folder / STATE)
        missing = [name for name, _ in model.named_parameters() if not all(f"{key}/{name}" in state for key in MOMENTS)]
        if missing:
            raise BadData(f"{folder / STATE} has no moments of {missing[0]}")
        for name, parameter in model.named_parameters():
            # Copied into tensors of torch's own: how a sum is rounded may depend on how memory is aligned.
            first, second = (torch.zeros_like(parameter).copy_(state[f"{key}/{name}"]) for key in MOMENTS)
            step = torch.tensor(float(position.update - position.skipped), device=parameter.device)
            optimizer.state[parameter] = {"step": step, "exp_avg": first, "exp_avg_sq": second}
        return position


def best_before(folder: Path) -> int:
    """The best update by what a checkpoint's position says; 0 for none, or where the position cannot be read."""
    try:
        return int(json.loads((folder / POSITION).read_text())["position"]["best_update"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def best_of(folder: Path) -> int:
    """The update of the best checkpoint among a training's ``checkpoints``. Raises BadData where none is named."""
    path = folder / f"{BEST}.json"
    try:
        return int(json.loads(path.read_text())["update"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadData(f"{path} names no best checkpoint: {error}") from error


def moments(model: Transformer, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Adam's two moments of every parameter, by name. Its step count is the number of updates not passed over."""
    state = optimizer.state
    return {
        f"{key}/{name}": state[parameter][field] if parameter in state else torch.zeros_like(parameter)
        for name, parameter in model.named_parameters()
        for key, field in zip(MOMENTS, ("exp_avg", "exp_avg_sq"), strict=True)
    }


def sum_of(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
