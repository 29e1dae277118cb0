"""Steps of ``visit.py`` that train and translate the packed runs."""

import argparse
import hashlib
import json
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.comparison import SIZES
from benchmarks.machine import PROJECT_ROOT
from model import average
from model import translate as translation
from model.config import Model, Training, from_json
from model.errors import JobError
from model.job import Job, JobSettings, StopSignal
from model.network.weights import MODEL_CONFIG, WEIGHTS, save_model_config
from model.training.distributed import Ranks
from model.training.setup import build_trainer
from model.training.trainer import Trainer

UPDATES, INTERRUPTED_AT = 150, 60
"""Of the trainings that are to be equal, and the update after which one is interrupted."""


class Stop(StopSignal):
    """``received`` after a number of seconds of training, or after an update."""

    def __init__(self, trainer: Trainer, seconds: float, update: int) -> None:
        self.trainer, self.end, self.update = trainer, time.monotonic() + seconds, update

    @property
    def received(self) -> bool:  # type: ignore[override]
        return time.monotonic() > self.end or 0 < self.update <= self.trainer.position.update


def train(chosen: argparse.Namespace) -> dict[str, Any]:
    """Train a packed run until its updates or ``--seconds`` are over; returns the facts and how the dev set fared."""
    job = training_job(chosen)
    trainer = build_trainer(job, Ranks())
    try:
        trainer.run(Stop(trainer, chosen.seconds, chosen.stop_at))
        facts = trainer.finish()
    except JobError as error:
        if error.reason != "preempted":
            raise
        facts = trainer.facts()
        if not chosen.stop_at:  # what it has reached is averaged
            save_model_config(job.out, trainer.step.model)
    rows = [json.loads(line) for line in (job.out / "metrics.jsonl").read_text().splitlines()]
    return {
        **facts,
        "dev": [[row["done"], row["dev_perplexity"]] for row in rows if "dev_perplexity" in row],
        "last_row": next((row for row in reversed(rows) if "tokens_per_second" in row), {}),
        "weights": digests(job.out),
    }


def training_job(chosen: argparse.Namespace) -> Job:
    """The job of a run's training on this device, in a folder of the visit."""
    data, out = PROJECT_ROOT / "data" / chosen.run, chosen.work / (chosen.name or chosen.run)
    template = json.loads((data / "job.json").read_text())
    model, training = from_json(Model, template["model"]), from_json(Training, template["training"])
    if chosen.short:
        model = replace(model, p_drop_attention=0.1, p_drop_relu=0.1)
        training = replace(training, updates=UPDATES, checkpoint_every=50, keep=3, dev_every=UPDATES)
    if chosen.size == "tiny":
        model = replace(SIZES["toy"][0], p_drop_attention=model.p_drop_attention)
        updates = UPDATES // 10 if chosen.short else 12
        training = replace(
            training, updates=updates, batch_tokens=400, checkpoint_every=5, keep=3, dev_every=12, dev_bleu=0
        )
    if chosen.device == "cpu":
        training = replace(training, precision="fp32")
    out.mkdir(exist_ok=True)
    inputs = {name: data / name for name in ("shards", "dev", "vocabulary")}
    config = {"model": asdict(model), "training": asdict(training)}
    return Job(config, inputs, out, JobSettings(device=chosen.device, log_seconds=1.0))


def digests(out: Path) -> dict[str, str]:
    """A sha256 of the weights of each checkpoint."""
    files = sorted(out.glob(f"checkpoints/*/{WEIGHTS}"))
    return {file.parent.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def repeat(chosen: argparse.Namespace) -> dict[str, Any]:
    """Train once, once more, and once interrupted and resumed; whether all end with the same weights to the bit.

    Attention weights are dropped too, so that on a GPU ``repro::packed_attention`` attends.
    """
    stop = INTERRUPTED_AT // 10 if chosen.size == "tiny" else INTERRUPTED_AT
    found: dict[str, Any] = {}
    for name, words in (("once", ()), ("again", ()), ("resumed", ("--stop-at", str(stop))), ("resumed", ())):
        result = chosen.work / f"{name}.json"
        given = ("--device", chosen.device, "--size", chosen.size, "--work", chosen.work, "--out", chosen.out)
        command = [sys.executable, PROJECT_ROOT / "benchmarks" / "visit_steps.py", "train", *given, *words]
        command += ["--run", chosen.run, "--name", name, "--short", "--json", result]
        subprocess.run(list(map(str, command)), check=True)
        found[name] = json.loads(result.read_text())
    once = found["once"]["weights"]
    return {
        "equal": {name: bool(once) and found[name]["weights"] == once for name in ("again", "resumed")},
        "trainings": found,
    }


def translate(chosen: argparse.Namespace) -> dict[str, Any]:
    """Average the last checkpoints of a run's training, translate its dev set, score it, and keep the translations."""
    from sacrebleu.metrics import BLEU

    data, run = PROJECT_ROOT / "data" / chosen.run, chosen.work / chosen.run
    template = json.loads((data / "job.json").read_text())
    if not (run / MODEL_CONFIG).exists():
        raise SystemExit(f"{run} holds no finished training")
    saved = len([path for path in run.glob("checkpoints/*") if path.name.isdigit()])
    averaging = {"count": min(template["averaging"]["count"], saved)}
    site = JobSettings(device=chosen.device)
    weights, out = chosen.work / f"{chosen.run}-weights", chosen.work / f"{chosen.run}-translations"
    weights.mkdir()
    out.mkdir()
    average.work(Job({"averaging": averaging}, {"run": run}, weights, site))
    inputs = {"weights": weights, "vocabulary": data / "vocabulary", "pairs": data / "dev"}
    # Toy models finish no sentence before its greatest length.
    decoding = template["decoding"] | ({"beam": 1, "max_extra": 1} if chosen.size == "tiny" else {})
    facts = translation.work(Job({"decoding": decoding}, inputs, out, site))
    hypotheses = pq.read_table(out / "hypotheses.parquet")["hypothesis"].to_pylist()
    references = (data / "reference.txt").read_text().split("\n")[:-1]
    metric = BLEU()
    score = metric.corpus_score(hypotheses, [references])
    (chosen.out / f"{chosen.run}.translations.txt").write_text("".join(line + "\n" for line in hypotheses))
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    searched = [row["sentences_per_second"] for row in rows if row["done"] <= facts["sentences"]]
    return {
        **facts,
        "checkpoints": averaging["count"],
        "bleu": score.score,
        "signature": str(metric.get_signature()),
        "sentences_per_second": searched[-1],
    }
