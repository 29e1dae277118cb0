"""Builds models, and saves them as ``model.safetensors`` and ``model.json`` (``Model`` and vocabulary sizes)."""

import errno
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..config import Model, from_json
from ..errors import bad_data
from .reference import Reference
from .transformer import Transformer

WEIGHTS = "model.safetensors"
MODEL_CONFIG = "model.json"


def save_model(folder: Path, model: Transformer) -> None:
    """Write weights and configuration; equal weights give equal bytes."""
    save_tensors(folder / WEIGHTS, model.state_dict())
    save_model_config(folder, model)


def save_model_config(folder: Path, model: Transformer) -> None:
    """Write ``model.json`` atomically."""
    shape = {"model": asdict(model.config), "source_size": model.source_size, "target_size": model.target_size}
    beside = folder / f"{MODEL_CONFIG}.partial"
    beside.write_text(json.dumps(shape, indent=1, sort_keys=True) + "\n")
    sync(beside)
    beside.replace(folder / MODEL_CONFIG)


def sync(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_model(folder: Path, device: torch.device | None = None) -> Transformer:
    """Load a model in evaluation mode. Raises JobError if the files are damaged or do not match."""
    try:
        shape = json.loads((folder / MODEL_CONFIG).read_text())
        config = from_json(Model, shape["model"])
        model = build(config, int(shape["source_size"]), int(shape["target_size"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise bad_data(f"{folder / MODEL_CONFIG} describes no model: {error}") from error
    load_weights(model, folder)
    return model.to(device or torch.device("cpu")).eval()


def load_weights(model: Transformer, folder: Path) -> None:
    """Load weights into a model. Raises JobError if they are missing, damaged or have other shapes."""
    try:
        model.load_state_dict(load_tensors(folder / WEIGHTS))
    except RuntimeError as error:
        raise bad_data(
            f"{folder / WEIGHTS} is of another model: {str(error).splitlines()[-1].strip()[:200]}"
        ) from error


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file; equal tensors give equal bytes. Raises OSError if writing fails."""
    try:
        save_file({name: tensors[name].detach().cpu().contiguous() for name in sorted(tensors)}, path)
    except SafetensorError as error:
        # The library reports the system's error number only in its message.
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]) if number else errno.EIO, str(error), str(path)) from error


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Load a safetensors file to the CPU. Raises JobError if it is missing or damaged."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise bad_data(f"{path} cannot be read: {error}") from error


def build(config: Model, source_size: int, target_size: int) -> Transformer:
    """Build an initialised model. Raises ValueError for tied embeddings with vocabularies of different sizes."""
    kind = Reference if config.attention == "torch" else Transformer
    return kind(config, source_size, target_size)
