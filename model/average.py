"""Averages the last or all kept checkpoints of a training (§6.1), or selects the best.

``python -m model.average job.json``

    inputs  run/ (the folder of a training)
    config  {"averaging": Averaging}
    out     model.safetensors (the mean of each tensor, computed in double precision), model.json (copied)
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from .config import Averaging, from_json
from .errors import bad_data
from .job import Facts, Job, run_job
from .network.weights import MODEL_CONFIG, WEIGHTS, load_tensors, save_tensors
from .training.checkpoint import BEST, read_best_update


def last_checkpoints(run: Path, count: int) -> list[Path]:
    """Return the weights of the last ``count`` checkpoints of a run (0: all), oldest first.

    Raises JobError if there are fewer, or none."""
    folder = run / "checkpoints"
    paths = sorted((path for path in folder.glob("*") if path.name.isdigit()), key=lambda path: int(path.name))
    if len(paths) < max(count, 1):
        raise bad_data(
            f"averaging.count is {count}, but {folder} holds {len(paths)} checkpoints: "
            "lower it, raise training.keep, or train longer"
        )
    return [path / WEIGHTS for path in paths[-count:]]


def best_checkpoint(run: Path) -> tuple[int, Path]:
    """Return update and weights with the lowest dev perplexity. Raises JobError if the training recorded no best."""
    folder = run / "checkpoints"
    update = read_best_update(folder)
    averaged = folder / f"{update:08d}" / WEIGHTS
    return update, averaged if averaged.exists() else folder / BEST / WEIGHTS


def average_checkpoints(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of each tensor over these files, in the files' dtype; for one file its unchanged tensors.

    Raises JobError naming a file that is missing or damaged, not finite, or has other tensors than the first.
    """
    sums: dict[str, Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    for path in paths:
        tensors = load_tensors(path)
        for name, tensor in tensors.items():
            if not bool(tensor.isfinite().all()):
                raise bad_data(f"{path}: {name} holds values that are not finite")
        if not sums:
            dtypes = {name: tensor.dtype for name, tensor in tensors.items()}
            sums = {name: tensor.double() for name, tensor in tensors.items()}
            continue
        check_same_tensors(paths[0], sums, path, tensors)
        for name, tensor in tensors.items():
            sums[name] += tensor
    return {name: (total / len(paths)).to(dtypes[name]) for name, total in sums.items()}


def check_same_tensors(first: Path, expected: dict[str, Tensor], path: Path, tensors: dict[str, Tensor]) -> None:
    unmatched = sorted(expected.keys() ^ tensors.keys())
    if unmatched:
        raise bad_data(f"{path} does not hold the tensors of {first}: only one of them has {', '.join(unmatched[:3])}")
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            shapes = f"{tuple(tensor.shape)}, but {tuple(expected[name].shape)}"
            raise bad_data(f"{path}: {name} has shape {shapes} in {first}")


def work(job: Job) -> Facts:
    """Average the checkpoints that ``averaging`` selects; return their number, first and last update."""
    averaging = from_json(Averaging, job.config["averaging"])
    if averaging.which == "best":
        update, path = best_checkpoint(job.inputs["run"])
        chosen = {update: path}
    else:
        count = 0 if averaging.which == "kept" else averaging.count
        chosen = {int(path.parent.name): path for path in last_checkpoints(job.inputs["run"], count)}
    shape = job.inputs["run"] / MODEL_CONFIG
    if not shape.is_file():
        raise bad_data(f"{shape} is missing")
    save_tensors(job.out / WEIGHTS, average_checkpoints(list(chosen.values())))
    shutil.copyfile(shape, job.out / MODEL_CONFIG)
    return {"checkpoints": len(chosen), "first_update": min(chosen), "last_update": max(chosen)}


if __name__ == "__main__":
    run_job(work)
