"""Measures on a GPU, within a limit of time, what only a GPU can answer: ``python benchmarks/visit.py --help``.

It runs in a folder of ``pack_visit.py`` and needs Python 3.12, torch, numpy, pyarrow, tokenizers, safetensors,
sacrebleu and pytest. Each step is a process with a limit of its own. A step that no longer fits is skipped, one that
fails or takes too long leaves the others alone, and ``report.json`` is rewritten after every step. With ``--work`` a
part that was cut off goes on: what is done is not done again, and a training resumes from its checkpoint.
"""

import argparse
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

PROJECT_ROOT = Path(__file__).resolve().parents[1]
PARTS = ("check", "train", "variants")
REPORT, LOG = "report.json", "log.txt"
VARIANTS = {
    "as is": (),
    "torch's attention": ("--variant", "varlen"),
    "residual stream in bf16": ("--residual", "bf16", "--precision", "bf16"),
    "whole update": ("--whole-update",),
    "ReLU apart": ("--variant", "relu-apart"),
    "not compiled": ("--no-compile",),
    "padded": ("--batching", "buckets"),
    "nn.Transformer beside it": ("--peers", "torch"),
}
"""Arguments of ``throughput.py``."""
COMPILED_LONGER = {"whole update": (90, 67), "nn.Transformer beside it": (36, 31)}
"""Seconds of both turns of a variant, where the usual ones (31, 25) may be too few; the second finds compiled kernels.
``h200_code.py --whole``, which compiles no kernels, took 44 CPU seconds."""
REHEARSAL = 20
"""How many times the limits of a visit hold in a rehearsal, on a CPU."""
SHOWN = 2_000
"""Characters of a failed step's output in the report; ``log.txt`` has all."""

EXAMPLES = """examples:
  python benchmarks/visit.py --part check --limit 560 --out results
  python benchmarks/visit.py --part train --out results --work /tmp/visit    again, to go on with what was cut off
  python benchmarks/visit.py --part check --device cpu --size tiny --out results    a rehearsal without a GPU
"""


@dataclass(frozen=True)
class Step:
    """A program of ``benchmarks/`` with its arguments; it writes its result into the file behind ``--json``."""

    name: str
    seconds: float
    """After this time it is killed."""
    program: str
    arguments: tuple[str, ...] = ()
    needs: str = ""
    """The step that must be done before."""


@dataclass(frozen=True)
class Place:
    """Where the steps of a visit run, and how large their models are."""

    device: str
    tiny: bool
    commit: str
    work: Path
    out: Path

    def steps(self, part: str) -> list[Step]:
        """The steps of a part in their order."""
        makers: dict[str, Callable[[], list[Step]]] = {
            "check": self.check,
            "train": self.train,
            "variants": self.variants,
        }
        # A rehearsal shares its CPU with others.
        return [replace(step, seconds=step.seconds * (REHEARSAL if self.tiny else 1)) for step in makers[part]()]

    def check(self) -> list[Step]:
        """Does it work, how fast is it, and where does the time go?"""
        return [
            self.step("probe", 20, "probe"),
            self.step("tests", 180, "tests"),
            Step("throughput base", 90, "throughput.py", self.throughput("base")),
            self.step("profile", 60, "profile"),
            self.step("attention", 40, "attention"),
            Step("decoding base", 50, "decoding.py", self.decoding()),
            Step("decoding with graphs", 35, "decoding.py", self.decoding_with_graphs()),
            Step("throughput big", 80, "throughput.py", self.throughput("big")),
        ]

    def train(self) -> list[Step]:
        """Is a resumed training the uninterrupted one, and what do trained models score?"""
        steps = [self.step("resumed training", 90, "repeat", "--run", "multi30k-ende")]
        for run, training, translation in (("multi30k-ende", 150, 20), ("wmt14-sample-ende", 160, 40)):
            ends = () if self.tiny else ("--seconds", str(training - 30))  # by itself, in time for a checkpoint
            steps += [
                self.step(run, training, "train", "--run", run, *ends),
                self.step(f"{run} translated", translation, "translate", "--run", run, needs=run),
            ]
        steps.append(self.step("decoding.precision", 80, "precisions", "--run", run, needs=f"{run} translated"))
        return steps

    def variants(self) -> list[Step]:
        """What does each change gain? Every variant twice, over the same batches, the second time in reverse order."""
        rounds = ("--rounds", "1" if self.tiny else "3")
        names = [name for name in VARIANTS if name not in left_out(self.device)]
        return [
            Step(
                f"{name} {turn}",
                COMPILED_LONGER.get(name, (31, 25))[turn - 1],
                "throughput.py",
                (*self.throughput("base"), *rounds, *words),
            )
            for turn, ordered in ((1, names), (2, names[::-1]))
            for name, words in ((name, VARIANTS[name]) for name in ordered)
        ]

    def step(self, name: str, seconds: float, what: str, *arguments: str, needs: str = "") -> Step:
        """A step of ``visit_steps.py``."""
        size = "tiny" if self.tiny else "full"
        given = ("--device", self.device, "--size", size, "--work", str(self.work), "--out", str(self.out))
        return Step(name, seconds, "visit_steps.py", (what, *given, *arguments), needs)

    def throughput(self, size: str) -> tuple[str, ...]:
        toy = ("--rounds", "1", "--updates", "2", "--warmup", "1", "--pairs", "200", "--tokens", "200")
        sized = ("--size", "toy", *toy, "--batching", "packed") if self.tiny else ("--size", size, "--lengths", "wmt")
        return (*sized, "--device", self.device, "--peers", "", "--commit", self.commit)

    def decoding(self) -> tuple[str, ...]:
        sized = ("--size", "toy", "--sentences", "4", "--rounds", "1") if self.tiny else ("--size", "base")
        return (*sized, "--lengths", "wmt", "--device", self.device, "--peers", "", "--commit", self.commit)

    def decoding_with_graphs(self) -> tuple[str, ...]:
        """Batches of few sentences, with and without."""
        few = ("--size", "toy", "--batch", "4", "--sentences", "4", "--rounds", "1")
        sized = few if self.tiny else ("--size", "base", "--batch", "16", "--sentences", "256")
        return (*sized, "--device", self.device, "--peers", "graphs", "--commit", self.commit)


def left_out(device: str) -> set[str]:
    """Variants that this device cannot run."""
    if device == "cuda":
        return set()
    from model.numerics import has_bf16  # it takes torch along

    return {"whole update"} | (set() if has_bf16() else {"residual stream in bf16"})


@dataclass
class Visit:
    """The steps of a part, and the report that grows with them."""

    steps: Sequence[Step]
    facts: Mapping[str, Any]
    out: Path
    limit: float
    kept: Path | None = None
    """Where a part that goes on in a later call keeps its report."""

    def __post_init__(self) -> None:
        self.begun = time.monotonic()
        earlier = finished(self.steps, self.kept, self.facts)
        self.rows: list[dict[str, Any]] = [
            earlier.get(step.name) or {"name": step.name, "status": "waiting", "limit": step.seconds}
            for step in self.steps
        ]

    def run(self) -> list[dict[str, Any]]:
        """Run the steps; returns a row for each: name, status, limit, seconds, result, why."""
        self.write()
        with (self.out / LOG).open("w") as log:
            for step, row in zip(self.steps, self.rows, strict=True):
                if row["status"] == "done":
                    continue
                left = self.limit - (time.monotonic() - self.begun)
                done = {row["name"] for row in self.rows if row["status"] == "done"}
                if step.needs and step.needs not in done:
                    row |= {"status": "skipped", "why": f"it needs {step.needs!r}, which is not done"}
                elif step.seconds > left:
                    row |= {"status": "skipped", "why": f"{left:.0f} s of the limit are left"}
                else:
                    print(f"{step.name} ...", file=sys.stderr, flush=True)
                    row |= run_step(step, log)
                self.write()
        return self.rows

    def write(self) -> None:
        """Replace the report."""
        seconds = round(time.monotonic() - self.begun, 1)
        report = {**self.facts, "limit": self.limit, "seconds": seconds, "steps": self.rows}
        for file in filter(None, (self.out / REPORT, self.kept)):
            partial = file.with_name(f"{file.name}.partial")
            partial.write_text(json.dumps(report, indent=1) + "\n")
            partial.replace(file)


def finished(steps: Sequence[Step], kept: Path | None, facts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The rows of an earlier call's report that stay: of steps that are done, with what they need, of this commit.

    A training that its time cut short goes on, and what needs it is done again.
    """
    if kept is None or not kept.exists():
        return {}
    report = json.loads(kept.read_text())
    if any(report[name] != facts[name] for name in ("commit", "part", "device", "size")):
        return {}
    done = {row["name"]: row for row in report["steps"] if row["status"] == "done"}
    found: dict[str, dict[str, Any]] = {}
    for step in steps:
        row = done.get(step.name)
        result = row.get("result") if row else None
        whole = result is not None and not (isinstance(result, dict) and result.get("cut_short"))
        if row and whole and (not step.needs or step.needs in found):
            found[step.name] = row | {"earlier": True}
    return found


def run_step(step: Step, log: IO[str]) -> dict[str, Any]:
    """Run one step in a process group of its own, which is killed at its limit; returns the row's other values.

    What a step has written when it is killed is its result all the same.
    """
    log.write(f"\n== {step.name}\n")
    log.flush()
    begins, begun = log.tell(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="visit-step-") as scratch:
        result = Path(scratch) / "result.json"
        program = str(PROJECT_ROOT / "benchmarks" / step.program)
        command = [sys.executable, program, *step.arguments, "--json", str(result)]
        search = os.pathsep.join(filter(None, [str(PROJECT_ROOT), os.environ.get("PYTHONPATH", "")]))
        environment = {**os.environ, "PYTHONPATH": search, "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, cwd=PROJECT_ROOT, env=environment, start_new_session=True
        )
        try:
            code = process.wait(step.seconds)
            status = "failed" if code else "done"
            why = f"exit status {code}" if code else ""
        except subprocess.TimeoutExpired:
            status, why = "too slow", f"killed after {step.seconds:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        row: dict[str, Any] = {"status": status, "seconds": round(time.monotonic() - begun, 1)}
        if result.exists():
            row["result"] = json.loads(result.read_text())
    if why:
        with Path(log.name).open() as written:
            written.seek(begins)
            row |= {"why": why, "output": written.read()[-SHOWN:]}
    return row


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    flags = argparse.ArgumentParser(
        prog="visit.py",
        description="What only a GPU can answer, within a limit of time.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    flags.add_argument("--part", choices=PARTS, required=True)
    flags.add_argument(
        "--limit",
        type=float,
        default=560,
        help="seconds of all steps together (560); 20 times as many with --size tiny",
    )
    flags.add_argument("--out", type=Path, required=True, help="for report.json, log.txt and translations")
    flags.add_argument(
        "--work", type=Path, help="folder for trainings, kept so that a later call goes on (a temporary one)"
    )
    flags.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    flags.add_argument("--size", choices=("full", "tiny"), default="full", help="tiny: toy models, for a rehearsal")
    return flags.parse_args(arguments)


def main() -> None:
    sys.path.insert(0, str(PROJECT_ROOT))
    chosen = parse(sys.argv[1:])
    out = chosen.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    commit = json.loads((PROJECT_ROOT / "visit.json").read_text())["commit"]
    facts = {
        "command": shlex.join(["python", "benchmarks/visit.py", *sys.argv[1:]]),
        "commit": commit,
        "python": platform.python_version(),
        "part": chosen.part,
        "device": chosen.device,
        "size": chosen.size,
    }
    with tempfile.TemporaryDirectory(prefix="visit-") as temporary:
        work = chosen.work.resolve() if chosen.work else Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        kept = work / f"{chosen.part}.json" if chosen.work else None
        place = Place(chosen.device, chosen.size == "tiny", commit, work, out)
        limit = chosen.limit * (REHEARSAL if place.tiny else 1)
        rows = Visit(place.steps(chosen.part), facts, out, limit, kept).run()
    for row in rows:
        print(f"{row['name']}: {row['status']}, {row.get('seconds', 0)} s {row.get('why', '')}".rstrip())


if __name__ == "__main__":
    main()
