"""Measure on a GPU what only a GPU can answer; docs/gpu.md says how. Every answer is a row of ``rows.jsonl``.

    python benchmarks/visit.py pack visit             here: a folder with code and data, to be copied to the node
    python benchmarks/visit.py run --out results      there, in that folder: all phases, each in its time

A node needs Python 3.11 or later, torch, numpy, pyarrow, tokenizers, safetensors and sacrebleu. Each phase is a process
that is killed at its limit; what it measured until then stays.
"""

import argparse
import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import PROJECT_ROOT as ROOT
from benchmarks.machine import processor, restart_as_job
from benchmarks.visit_pack import RUN, pack

if TYPE_CHECKING:
    from model.job import Job
    from model.training.trainer import Trainer

LIMITS = {"check": 150.0, "speed": 320.0, "profile": 60.0, "train": 240.0}
"""Seconds of the phases."""
TRAIN_MARGIN = 60.0
"""Seconds that the phase ``train`` keeps for translation: the training stops before."""
FASTEST = ("--attention", "own", "--whole-update", "--residual", "bf16")
VARIANTS: dict[str, tuple[str, ...]] = {
    "base": (),
    "base, own attention": ("--attention", "own"),
    "base, whole update": ("--whole-update",),
    "base, own attention, whole update": ("--attention", "own", "--whole-update"),
    "base, own attention, whole update, bf16 residual": (*FASTEST,),
    "base beside nn.Transformer": ("--peers", "torch"),
    "base, padded": ("--batching", "buckets"),
    "big": ("--size", "big"),
    "big, own attention, whole update, bf16 residual": ("--size", "big", *FASTEST),
}
"""What ``throughput.py`` measures, with its arguments."""
ON_A_CPU = ("base", "base, padded", "base beside nn.Transformer")
AT_ONCE = 3
"""Variants compiled at once: more do not fit into the memory of an H100."""


@dataclass(frozen=True)
class Visit:
    """Where the phases compute and where their rows go."""

    device: Literal["cuda", "cpu"]
    tiny: bool
    work: Path
    """A folder for trainings: with the same one a later call goes on where this one was cut off."""
    out: Path

    @property
    def gpu(self) -> bool:
        return self.device == "cuda"

    @property
    def commit(self) -> str:
        packed = ROOT / "visit.json"
        return str(json.loads(packed.read_text())["commit"]) if packed.exists() else "unknown"

    def row(self, what: str, figure: float, unit: str, spread: str = "", peer: str = "") -> None:
        """Append a row in the form of ``benchmarks/results.jsonl``."""
        import torch

        row = {
            "section": "GPU",
            "what": what,
            "figure": figure,
            "spread": spread,
            "unit": unit,
            "peer": peer,
            "machine": torch.cuda.get_device_name() if self.gpu else processor(),
            "commit": self.commit,
            "date": date.today().isoformat(),
            "command": shlex.join(["python", "benchmarks/visit.py", *sys.argv[1:]]),
            "limit": "",
            "note": "",
        }
        with (self.out / "rows.jsonl").open("a") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def seconds(self, work: Callable[[], object], times: int = 10) -> float:
        """Wall seconds of one call: the least of three rounds of ``times`` calls, after one round that warms up."""
        import torch

        rounds = []
        for _ in range(4):
            started = time.perf_counter()
            for _ in range(times):
                work()
            if self.gpu:
                torch.cuda.synchronize()
            rounds.append((time.perf_counter() - started) / times)
        return min(rounds[1:])


def check(visit: Visit) -> None:
    """Rows about the machine, about gradients against those of a CPU, and about trainings that should be equal."""
    ceilings(visit)
    gradients(visit)
    trainings = {"once": (0,), "again": (0,), "resumed": (7 if visit.tiny else 60, 0)}
    weights = {}
    losses = {}
    for name, stops in trainings.items():
        shutil.rmtree(visit.work / name, ignore_errors=True)
        for stop in stops:
            job = training_job(visit, name, short=True)
            train_until(job, seconds=float("inf"), update=stop)
        weights[name] = digests(job.out)
        losses[name] = losses_by_update(job.out)
    for name in ("again", "resumed"):
        equal = bool(weights["once"]) and weights[name] == weights["once"]
        visit.row(f"training {name} has the same weights to the bit", float(equal), "1 is yes")
        others = (update for update, loss in losses["once"].items() if losses[name].get(update, loss) != loss)
        visit.row(f"training {name}, first update with another loss", next(others, 0), "0 is none")


def ceilings(visit: Visit) -> None:
    """What the device reaches in one matrix product, one copy and one small kernel."""
    import torch

    size = 8192 if visit.gpu else 256
    for name, dtype, precision in (
        ("bf16", torch.bfloat16, "highest"),
        ("tf32", torch.float32, "high"),
        ("fp32", torch.float32, "highest"),
    ):
        torch.set_float32_matmul_precision(precision)
        x = torch.randn(size, size, device=visit.device, dtype=dtype)
        taken = visit.seconds(lambda x=x: x @ x)  # type: ignore[misc]
        visit.row(f"one product of {size} x {size}, {name}", 2 * size**3 / taken / 1e12, "TFLOP/s")
    torch.set_float32_matmul_precision("highest")
    elements = 1 << 28 if visit.gpu else 1 << 16
    x = torch.zeros(elements, device=visit.device)
    y = torch.empty_like(x)
    visit.row("copy", 2 * 4 * elements / visit.seconds(lambda: y.copy_(x)) / 1e9, "GB/s")
    small = torch.zeros(1, device=visit.device)
    visit.row("launch of a small kernel", visit.seconds(lambda: small.add_(1), 1_000) * 1e6, "microseconds")


def gradients(visit: Visit) -> None:
    """Cosine of all gradients of a batch to those of padded rows in float32 on a CPU."""
    import torch

    from model.config import Model
    from model.data.batch import load_padded
    from model.data.batches import BatchSampler, Cursor
    from model.data.shards import Shards
    from model.experimental import packed_attention
    from model.network.attention import PackedAttention
    from model.network.transformer import Transformer
    from model.training.loss import Objective

    shards = Shards(ROOT / "data" / RUN / "shards")
    model = Model(layers=2, d_model=64, d_ff=128, heads=2, d_k=32, d_v=32, p_drop=0.0)
    size = 1 + max(int(shards.pieces(side, row).max()) for side in ("source", "target") for row in range(len(shards)))

    sampler = BatchSampler(shards, 500, 1, "packed")
    rows, following = next(sampler.batches_from(Cursor()))
    [packed] = sampler.read(rows, following, 0, 1, 0).micro_batches
    batches = {"packed": packed, "buckets": load_padded(shards, rows)}

    def gradient(batching: str, device: str, attend: PackedAttention | None) -> torch.Tensor:
        torch.manual_seed(0)
        objective = Objective(Transformer(model, size, size), 0.1).to(device)
        objective.transformer.packed_attention = attend
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss, _ = objective(batches[batching].to(torch.device(device)))
        loss.backward()
        return torch.cat([p.grad.flatten().double().cpu() for p in objective.parameters() if p.grad is not None])

    exact = gradient("buckets", "cpu", None)
    for name, batching, attend in (
        ("padded", "buckets", None),
        ("packed", "packed", None),
        ("packed, own attention", "packed", packed_attention.attend),
    ):
        if attend and not visit.gpu:
            continue
        found = gradient(batching, visit.device, attend)
        cosine = torch.cosine_similarity(found, exact, dim=0).item()
        visit.row(f"gradients, {name}, against a CPU", cosine, "cosine")


def speed(visit: Visit) -> None:
    """Rows about the speed of training in its variants and of decoding, base size over WMT's lengths."""
    from benchmarks import decoding, throughput

    toy = ["--rounds", "1", "--updates", "2", "--warmup", "1", "--pairs", "200", "--tokens", "200", "--size", "toy"]
    common = [*(toy if visit.tiny else ["--size", "base", "--rounds", "3"]), "--lengths", "wmt"]
    common += ["--device", visit.device, "--peers", "", "--commit", visit.commit, "--batching", "packed"]
    variants = {name: VARIANTS[name] for name in ON_A_CPU} if visit.tiny else VARIANTS

    def compile_first(variant: tuple[str, ...]) -> None:
        few = ["--rounds", "1", "--updates", "1", "--warmup", "4"]
        program = [sys.executable, str(ROOT / "benchmarks" / "throughput.py")]
        subprocess.run([*program, *common, *variant, *few], check=False)

    with ThreadPoolExecutor(AT_ONCE) as pool:  # the compiler's cache on disk then serves the measurements
        list(pool.map(compile_first, variants.values() if visit.gpu else ()))
    for name, variant in variants.items():
        report = throughput.measure([*common, *variant])
        for contestant, found in report["contestants"].items():
            rates = found["per_second"]
            peer = "" if contestant == "own" else contestant
            spread = f"{rates['least']:.0f}–{rates['most']:.0f}"
            visit.row(f"training, {name}", rates["median"], "target tokens/s", spread, peer)
            share = found["utilisation"]["median"]
            visit.row(f"training, {name}, of the device's peak", 100 * share, "%", peer=peer)
    sized = ["--size", "toy", "--sentences", "4", "--rounds", "1"] if visit.tiny else ["--size", "base"]
    words = [*sized, "--lengths", "wmt", "--device", visit.device, "--peers", "", "--commit", visit.commit]
    rates = decoding.measure(words)["decoders"]["own"]["wall"]
    visit.row("decoding, base", rates["median"], "sentences/s", f"{rates['least']:.1f}–{rates['most']:.1f}")


def profile(visit: Visit) -> None:
    """Rows about the milliseconds of an update of base by group of kernels; idle is when the device does nothing."""
    from benchmarks.visit_profile import profile_update

    folder = visit.work / "profile"
    shutil.rmtree(folder, ignore_errors=True)  # of a call that was cut off
    for group, milliseconds in profile_update(folder, visit.device, tiny=visit.tiny).items():
        visit.row(f"update of base, {group}" if group else "update of base", milliseconds, "ms")


def train(visit: Visit) -> None:
    """Rows about the packed run: trained within the phase's time, and its dev set translated and scored."""
    import pyarrow.parquet as pq
    from sacrebleu.metrics import BLEU

    from model import average, translate
    from model.job import Job, JobSettings

    job = training_job(visit, RUN, short=False)
    seconds = float("inf") if visit.tiny else LIMITS["train"] - TRAIN_MARGIN
    trainer = train_until(job, seconds)
    facts = trainer.facts()
    visit.row(f"{RUN}, updates", facts["updates"], f"of {trainer.training.updates}")
    visit.row(f"{RUN}, training", facts["seconds"], "s")
    visit.row(f"{RUN}, dev perplexity", facts["dev_perplexity"], "")
    data = ROOT / "data" / RUN
    settings = json.loads((data / "job.json").read_text())
    saved = len(list(job.out.glob("checkpoints/0*")))
    weights = visit.work / "weights"
    weights.mkdir(exist_ok=True)
    averaging = {"count": min(settings["averaging"]["count"], saved)}
    average.work(Job({"averaging": averaging}, {"run": job.out}, weights, job.site))
    inputs = {"weights": weights, "vocabulary": data / "vocabulary", "pairs": data / "dev", "text": data / "text"}
    references = (data / "reference.txt").read_text().split("\n")[:-1]
    for precision in ("fp32", "tf32", "bf16") if visit.gpu else ("fp32",):
        decoding = settings["decoding"] | {"precision": precision}
        if visit.tiny:  # toy models finish no sentence before its greatest length
            decoding |= {"beam": 1, "max_extra": 1}
        out = visit.work / f"translations-{precision}"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        config = {"decoding": decoding, "normalise": settings["normalise"]}
        started = time.perf_counter()
        translate.work(Job(config, inputs, out, JobSettings(device=visit.device)))
        rate = len(references) / (time.perf_counter() - started)
        lines = pq.read_table(out / "hypotheses.parquet")["hypothesis"].to_pylist()
        (visit.out / f"translations-{precision}.txt").write_text("".join(f"{line}\n" for line in lines))
        metric = BLEU()
        score = metric.corpus_score(lines, [references]).score
        visit.row(f"{RUN}, dev BLEU, decoding.precision={precision}", score, str(metric.get_signature()))
        visit.row(f"{RUN}, translation with its start, decoding.precision={precision}", rate, "sentences/s")


def training_job(visit: Visit, name: str, *, short: bool) -> "Job":
    """The job that trains the packed run on this device; ``short``: few updates, with dropout of what has none."""
    from benchmarks.comparison import SIZES
    from model.config import Model, Training, from_json
    from model.job import Job, JobSettings

    data = ROOT / "data" / RUN
    settings = json.loads((data / "job.json").read_text())
    model = from_json(Model, settings["model"])
    training = from_json(Training, settings["training"])
    if short:
        model = replace(model, p_drop_relu=0.1)
        training = replace(training, updates=150, checkpoint_every=50, keep=3, dev_every=150)
    if visit.tiny:
        model = SIZES["toy"][0]
        training = replace(training, updates=12, batch_tokens=400, checkpoint_every=5, keep=3, dev_every=12, dev_bleu=0)
    if not visit.gpu:
        training = replace(training, precision="fp32")
    out = visit.work / name
    out.mkdir(exist_ok=True)
    inputs = {part: data / part for part in ("shards", "dev", "vocabulary")}
    config = {"model": asdict(model), "training": asdict(training)}
    return Job(config, inputs, out, JobSettings(device=visit.device, log_seconds=0.0 if short else 1.0))


def train_until(job: "Job", seconds: float, update: int = 0) -> "Trainer":
    """Train until the end, for so many seconds, or until an update; what it reached has checkpoints."""
    from model.errors import JobError
    from model.network.weights import save_model_config
    from model.train import trainer_for
    from model.training.distributed import Ranks

    trainer = trainer_for(job, Ranks())
    end = time.monotonic() + seconds

    class Stop:
        @property
        def received(self) -> bool:
            return time.monotonic() > end or 0 < update <= trainer.position.update

    try:
        trainer.run(Stop())  # type: ignore[arg-type]
        trainer.finish()
    except JobError as error:
        if error.reason != "preempted":
            raise
        if not update:  # what it has reached is averaged
            save_model_config(job.out, trainer.step.model)
    return trainer


def digests(out: Path) -> dict[str, str]:
    """A SHA-256 of the weights of each checkpoint."""
    files = sorted(out.glob("checkpoints/*/model.safetensors"))
    return {file.parent.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def losses_by_update(out: Path) -> dict[int, float]:
    """The loss of each update that ``metrics.jsonl`` has."""
    rows = (json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines())
    return {row["done"]: row["nll"] for row in rows if "nll" in row}


def run_phases(visit: Visit, phases: Iterable[str]) -> None:
    """Run phases one after the other, and kill a phase at its limit; ``log.txt`` has their output."""
    for phase in phases:
        words = [phase, "--out", visit.out, "--work", visit.work, "--device", visit.device]
        command = [sys.executable, __file__, *words, *(["--tiny"] if visit.tiny else [])]
        with (visit.out / "log.txt").open("a") as log:
            started = time.monotonic()
            process = subprocess.Popen(
                list(map(str, command)), stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True
            )
            try:
                # A rehearsal on a CPU shares it with others.
                status = process.wait(LIMITS[phase] * (20 if visit.tiny else 1))
                ended = "done" if status == 0 else f"failed with exit status {status}, see log.txt"
            except subprocess.TimeoutExpired:
                ended = "killed at its limit"
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        print(f"{phase}: {ended}, {time.monotonic() - started:.0f} s", flush=True)


PHASES: dict[str, Callable[[Visit], None]] = {"check": check, "speed": speed, "profile": profile, "train": train}


def main() -> None:
    flags = argparse.ArgumentParser(prog="visit.py", description="Measure on a GPU what only a GPU can answer.")
    commands = flags.add_subparsers(dest="command", required=True)
    commands.add_parser("pack", help="write a folder to copy to the node").add_argument("folder", type=Path)
    for name in ("run", *PHASES):
        added = commands.add_parser(name, help="all phases, or --phases" if name == "run" else "this phase alone")
        added.add_argument("--out", type=Path, required=True, help="for rows.jsonl, log.txt and translations")
        added.add_argument("--work", type=Path, default=Path("visit-work"), help="for trainings; kept, to go on")
        added.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
        added.add_argument("--tiny", action="store_true", help="toy sizes, for a rehearsal on a CPU")
        if name == "run":
            added.add_argument("--phases", default=",".join(PHASES), help="separated by commas")
    chosen = flags.parse_args()
    if chosen.command == "pack":
        pack(chosen.folder)
        return
    visit = Visit(chosen.device, chosen.tiny, chosen.work.resolve(), chosen.out.resolve())
    visit.work.mkdir(parents=True, exist_ok=True)
    visit.out.mkdir(parents=True, exist_ok=True)
    if chosen.command == "run":
        run_phases(visit, chosen.phases.split(","))
    else:
        restart_as_job()
        PHASES[chosen.command](visit)


if __name__ == "__main__":
    main()
