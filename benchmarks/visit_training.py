"""Steps of ``visit.py`` that train and translate the packed runs."""

import argparse
import hashlib
import json
import shutil
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
from model.config import Decoding, Model, Training, from_json
from model.data.shards import Shards
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
    trainer, cut_short = build_trainer(job, Ranks()), False
    try:
        trainer.run(Stop(trainer, chosen.seconds, chosen.stop_at))
        facts = trainer.finish()
    except JobError as error:
        if error.reason != "preempted":
            raise
        facts, cut_short = trainer.facts(), True
        if not chosen.stop_at:  # what it has reached is averaged
            save_model_config(job.out, trainer.step.model)
    rows = [json.loads(line) for line in (job.out / "metrics.jsonl").read_text().splitlines()]
    return {
        **facts,
        "cut_short": cut_short,
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

    On a GPU ``model::packed_attention`` attends: sentences are short, and attention weights are dropped too.
    """
    stop = INTERRUPTED_AT // 10 if chosen.size == "tiny" else INTERRUPTED_AT
    found: dict[str, Any] = {}
    for name in ("once", "again", "resumed"):
        shutil.rmtree(chosen.work / name, ignore_errors=True)  # of a call that was cut off
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
    run = chosen.work / chosen.run
    if not (run / MODEL_CONFIG).exists():
        raise SystemExit(f"{run} holds no finished training")
    template = json.loads((PROJECT_ROOT / "data" / chosen.run / "job.json").read_text())
    saved = len([path for path in run.glob("checkpoints/*") if path.name.isdigit()])
    averaging = {"count": min(template["averaging"]["count"], saved)}
    job = translation_job(chosen)
    for folder in (job.inputs["weights"], job.out):
        shutil.rmtree(folder, ignore_errors=True)  # of a call that was cut off
        folder.mkdir()
    average.work(Job({"averaging": averaging}, {"run": run}, job.inputs["weights"], job.site))
    facts = translation.work(job)
    hypotheses = pq.read_table(job.out / "hypotheses.parquet")["hypothesis"].to_pylist()
    (chosen.out / f"{chosen.run}.translations.txt").write_text("".join(line + "\n" for line in hypotheses))
    rows = [json.loads(line) for line in (job.out / "metrics.jsonl").read_text().splitlines()]
    searched = [row["sentences_per_second"] for row in rows if row["done"] <= facts["sentences"]]
    return {
        **facts,
        "checkpoints": averaging["count"],
        **score(chosen.run, hypotheses),
        "sentences_per_second": searched[-1],
    }


def precisions(chosen: argparse.Namespace) -> dict[str, Any]:
    """Search a run's dev set in each ``decoding.precision`` with the weights of ``translate``, the second time timed.

    For each precision the sentences per second, the score, and the share of hypotheses that are those of float32.
    """
    job = translation_job(chosen)
    shards = Shards(job.inputs["pairs"])
    sources = [shards.pieces("source", row).tolist() for row in range(len(shards))]
    found: dict[str, Any] = {}
    exact: list[tuple[int, ...]] = []
    for precision in ("fp32", "tf32", "bf16"):
        decoding = replace(from_json(Decoding, job.config["decoding"]), precision=precision)
        try:
            translator = translation.load(job, decoding)
        except ValueError as error:
            found[precision] = {"refused": str(error)}
            continue
        translator.search(sources, decoding)
        begun = time.perf_counter()
        hypotheses = translator.search(sources, decoding)
        seconds = time.perf_counter() - begun
        pieces = [hypothesis.pieces for hypothesis in hypotheses]
        exact = exact or pieces
        found[precision] = {
            "sentences_per_second": len(sources) / seconds,
            "equal": sum(a == b for a, b in zip(pieces, exact, strict=True)) / len(sources),
            **score(chosen.run, [translator.text(hypothesis) for hypothesis in hypotheses]),
        }
        chosen.json.write_text(json.dumps(found))  # kept if the next precision takes too long
    return {"sentences": len(sources), **found}


def translation_job(chosen: argparse.Namespace) -> Job:
    """The job that translates a run's dev set with averaged weights, in a folder of the visit."""
    data, work = PROJECT_ROOT / "data" / chosen.run, chosen.work
    inputs = {
        "weights": work / f"{chosen.run}-weights",
        "vocabulary": data / "vocabulary",
        "pairs": data / "dev",
        "text": data / "text",
    }
    packed = json.loads((data / "job.json").read_text())
    decoding = packed["decoding"]
    if chosen.size == "tiny":  # toy models finish no sentence before its greatest length
        decoding |= {"beam": 1, "max_extra": 1}
    config = {"decoding": decoding, "normalise": packed["normalise"]}
    return Job(config, inputs, work / f"{chosen.run}-translations", JobSettings(device=chosen.device))


def score(run: str, hypotheses: list[str]) -> dict[str, Any]:
    """BLEU of translations of a run's dev set, with its signature."""
    from sacrebleu.metrics import BLEU

    references = (PROJECT_ROOT / "data" / run / "reference.txt").read_text().split("\n")[:-1]
    metric = BLEU()
    return {"bleu": metric.corpus_score(hypotheses, [references]).score, "signature": str(metric.get_signature())}
