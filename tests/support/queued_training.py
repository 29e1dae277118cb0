"""The training of ``small_training`` as a job for a launcher, and what runs of it."""

import json
from pathlib import Path
from typing import Any

import psutil
from small_training import rows, write_job

from infra.launch.job import JobSpec
from model.config import Training


def queued_training(root: Path, name: str, training: Training, *, ranks: int = 1, **site: Any) -> JobSpec:
    path = write_job(root, name=name, training=training, **site)
    document = json.loads(path.read_text())
    path.unlink()
    inputs = {name: Path(folder) for name, folder in document["inputs"].items()}
    return JobSpec("model.train", document["config"], inputs, path.parent, document["site"], ranks, distributed=True)


def has_started(job: JobSpec) -> bool:
    metrics = job.out / "metrics.jsonl"
    return metrics.exists() and len(rows(job.path)) > 20


def processes_with(*words: str) -> list[psutil.Process]:
    """Processes with each of ``words`` in one of their arguments."""
    found = []
    for process in psutil.process_iter():
        try:
            arguments = process.cmdline()
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
        if all(any(word in argument for argument in arguments) for word in words):
            found.append(process)
    return found
