"""CPU seconds of ``repro plan``, ``show``, ``status`` and ``gc`` on a root with many artifacts and records of runs.

Most artifacts are small and made up, but whole: each has a file, a manifest with its sum and the file of its lock. The
plan is one of a real run, with few updates, whose stages are all hits.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

PROJECT_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT_ROOT))

from benchmarks.machine import aligned, parser, run_program, settings  # noqa: E402
from infra.store.manifest import MANIFEST, Manifest, content_digest, manifest_envelope  # noqa: E402

STAGES = ("download", "clean", "learn_bpe", "shard", "train", "average", "prepare_sets", "translate", "score", "report")
RUNS = ("demo", *(f"run{number}" for number in range(19)))
REPEATS = 5
"""Records of a run with the same overrides."""
REPRO = [sys.executable, "-c", "from flows.cli import main; main()"]
REAL = ("demo", "--set", "training.updates=4", "--set", "averaging.count=1")
"""The run whose plan is measured."""
COMMANDS = {
    "plan, all hits": ("plan", *REAL, "--json"),
    "artifacts of a run": ("show", "run3", "--artifacts"),
    "artifacts": ("show", "--artifacts"),
    "status": ("status", "--close"),
    "gc": ("gc", "--json"),
}
EXAMPLES = "for example: python benchmarks/large_root.py --artifacts 100000 --records 10000"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser("large_root.py", __doc__, EXAMPLES)
    options.add_argument("--artifacts", type=int, default=100_000)
    options.add_argument("--records", type=int, default=10_000)
    options.add_argument("--repeat", type=int, default=3, help="times that each command runs; the least time counts")
    return options.parse_args(arguments)


def measure(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the whole report."""
    asked = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="large-root-") as folder:
        root = Path(folder)
        make_real_run(root)
        keys = list(make_artifacts(root, asked.artifacts))
        make_records(root, keys, asked.records)
        seconds = {
            name: min(cpu_seconds(root, *words) for _ in range(asked.repeat)) for name, words in COMMANDS.items()
        }
    return {**settings("large_root.py", arguments, asked), "seconds": seconds}


def make_real_run(root: Path) -> None:
    """Execute the run whose plan is measured, and make sure that its stages are hits."""
    for words in (("run", *REAL), ("plan", *REAL, "--json")):
        output = subprocess.run([*REPRO, *words], env=environment(root), check=True, stdout=subprocess.PIPE).stdout
    states = {stage["state"] for stage in json.loads(output)["stages"]}
    if states != {"hit"}:
        raise SystemExit(f"the stages of {' '.join(REAL)} are {', '.join(sorted(states))}, not all hits")


def environment(root: Path) -> dict[str, str]:
    return {**os.environ, "REPRO_ROOT": str(root), "PYTHONPATH": str(PROJECT_ROOT)}


def make_artifacts(root: Path, count: int) -> Iterator[list[tuple[str, str]]]:
    """Write ``count`` artifacts; yields the (stage, key) of each chain of stages, where each needs the one before."""
    for chain in range(-(-count // len(STAGES))):
        names: list[tuple[str, str]] = []
        inputs: dict[str, str] = {}
        for stage in STAGES[: count - chain * len(STAGES)]:
            key = hashlib.sha256(f"{stage} {chain}".encode()).hexdigest()[:24]
            contents = {"data.txt": f"{stage} {chain}\n".encode()}
            made = {"time": "2026-01-01T00:00:00+00:00"}
            content = write_artifact(root, stage, key, {"chain": chain}, inputs, contents, {"lines": 1}, made)
            (root / "locks").mkdir(exist_ok=True)
            (root / "locks" / f"{stage}-{key}.lock").touch()
            names.append((stage, key))
            inputs = {f"{stage}/{key}": content}
        yield names


def write_artifact(
    root: Path,
    name: str,
    key: str,
    arguments: Mapping[str, Any],
    inputs: Mapping[str, str],
    contents: Mapping[str, bytes],
    facts: Mapping[str, Any],
    made: Mapping[str, Any],
) -> str:
    """Write an artifact of ``stage`` or ``stage.item`` with these files; returns the digest of its content."""
    stage, _, item = name.partition(".")
    folder = root / stage / key
    folder.mkdir(parents=True)
    for file, content in contents.items():
        (folder / file).write_bytes(content)
    files = {file: {"sha256": hashlib.sha256(text).hexdigest(), "bytes": len(text)} for file, text in contents.items()}
    digest = content_digest(files)
    manifest = Manifest(stage, key, 1, item, dict(arguments), dict(inputs), digest, dict(facts), files, 1.0, dict(made))
    (folder / MANIFEST).write_text(json.dumps(manifest_envelope(manifest), indent=1))
    return digest


def make_records(root: Path, chains: Sequence[Sequence[tuple[str, str]]], count: int) -> None:
    """Write ``count`` records of finished runs, whose stages are those of a chain."""
    began = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(count):
        run = RUNS[number % len(RUNS)]
        stages = [
            {"stage": stage, "item": "", "key": key, "state": "completed", "seconds": 1.0, "form": {"chain": number}}
            for stage, key in chains[number % len(chains)]
        ]
        overrides = [f"seed={number // len(RUNS) // REPEATS}"]
        write_record(root, run, began + timedelta(minutes=number), overrides=overrides, stages=stages)


def write_record(root: Path, run: str, started: datetime, **fields: Any) -> None:
    """Write the record of a run; ``fields`` are its overrides, its stages and what differs from a finished run's."""
    asked = {"run": run, "from_stage": "", "until": "", "force": [], "site": "local"}
    record = {"run": run, "outcome": "FINISHED", "who": "somebody", "commit": "", "process": "", "asked": asked}
    path = root / "runs" / run / f"{started:%Y%m%dT%H%M%S-%f}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**record, "attempt": "", **fields}, indent=1))


def cpu_seconds(root: Path, *words: str) -> float:
    """The CPU seconds of ``repro`` with these words, and of what it starts."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([*REPRO, *words], env=environment(root), stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise SystemExit(f"repro {' '.join(words)} ended with {process.returncode}: {said.read()[-2000:]}")
    return round(usage.ru_utime + usage.ru_stime, 2)


def table(report: Mapping[str, Any]) -> str:
    rows = [("command", "CPU seconds"), *((name, f"{each:.2f}") for name, each in report["seconds"].items())]
    title = f"{report['artifacts']:,} artifacts, {report['records']:,} records; {report['device']}"
    return "\n".join([title, *aligned(rows)])


if __name__ == "__main__":
    run_program(measure, table, parse)
