"""Packs a folder for ``visit.py``, which runs where nothing of this project is installed:

    REPRO_ROOT=.repro python benchmarks/pack_visit.py --out visit

It holds the code at a commit, and of each run in ``RUNS`` the shards, the dev set with its references, the vocabulary
and the settings of its jobs. The root must have the shards (``repro run RUN --until shard``).
"""

import argparse
import io
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import PROJECT_ROOT
from flows.runner.request import RunRequest
from flows.runs import Run
from infra.errors import BadConfiguration
from model.config.presets import BASE

CODE = ("model", "benchmarks", "tests/conftest.py", "tests/support", "tests/model", "pyproject.toml")
MOST_BYTES = 35_000_000


def on_gpu(run: Run) -> Run:
    """Train on packed batches in bfloat16."""
    return replace(run, training=replace(run.training, batching="packed", precision="bf16"))


def as_base(run: Run) -> Run:
    """Train the paper's base shape on a small corpus: more dropout, pre-LN, and batches of the paper's size."""
    run = on_gpu(run)
    training = replace(
        run.training, updates=2_500, batch_tokens=25_000, warmup=500, peak=1e-3, checkpoint_every=100, dev_every=500
    )
    return replace(run, model=replace(BASE, norm="pre", p_drop=0.3), training=training)


RUNS: dict[str, Callable[[Run], Run]] = {"multi30k-ende": on_gpu, "wmt14-sample-ende": as_base}
"""The runs that are packed, and how their settings are changed for a GPU."""


def pack_run(name: str, change: Callable[[Run], Run], folder: Path) -> None:
    """Write the shards, texts, vocabulary, references and ``job.json`` of a run into a new folder.

    Raises BadConfiguration if the root lacks one of them.
    """
    request = RunRequest(name, until="shard").resolve()
    run, rows = request.run, {(row.stage, row.item): row for row in request.plan.outcome.rows}
    wanted = {
        "shards": ("shard", "train"),
        "dev": ("shard", run.dev),
        "vocabulary": ("learn_bpe", ""),
        "text": ("prepare_sets", run.dev),
    }
    found = {}
    for what, row in wanted.items():
        if row not in rows or rows[row].state != "hit":
            raise BadConfiguration(
                f"root {request.site.root} has no {' '.join(row).strip()} of {name}: repro run {name} --until shard"
            )
        found[what] = Path(rows[row].path)
    folder.mkdir(parents=True)
    for what in ("shards", "dev", "text", "vocabulary"):
        shutil.copytree(found[what], folder / what, ignore=shutil.ignore_patterns("manifest.json"))
    references = pq.read_table(found["text"] / "pairs.parquet")["target"].to_pylist()
    (folder / "reference.txt").write_text("".join(line + "\n" for line in references))
    (folder / "job.json").write_text(json.dumps(settings(change(run)), indent=1) + "\n")


def settings(run: Run) -> dict[str, Any]:
    """What the jobs of a run need."""
    found = {name: asdict(getattr(run, name)) for name in ("model", "training", "averaging", "decoding")}
    return found | {"normalise": asdict(run.filters.normalise)}


def unpack_code(commit: str, folder: Path) -> str:
    """Write ``CODE`` at a commit of this checkout into a folder; returns the commit's full name."""
    git = ["git", "-C", str(PROJECT_ROOT)]
    full = subprocess.run([*git, "rev-parse", commit], capture_output=True, text=True, check=True).stdout.strip()
    archive = subprocess.run([*git, "archive", full, *CODE], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return full


def size(folder: Path) -> int:
    """Bytes of all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def pack(out: Path, commit: str) -> int:
    """Write the whole folder; returns its size in bytes. Raises BadConfiguration if it exists or is too large."""
    if out.exists():
        raise BadConfiguration(f"--out {out} exists already: name a new folder")
    out.mkdir(parents=True)
    full = unpack_code(commit, out)
    for name, change in RUNS.items():
        pack_run(name, change, out / "data" / name)
    (out / "visit.json").write_text(json.dumps({"commit": full, "runs": list(RUNS)}) + "\n")
    packed = size(out)
    if packed > MOST_BYTES:
        raise BadConfiguration(f"{out} has {packed:,} bytes, allowed are {MOST_BYTES:,}")
    return packed


def main(arguments: Sequence[str]) -> None:
    flags = argparse.ArgumentParser(prog="pack_visit.py", description=(__doc__ or "").splitlines()[0].rstrip(":"))
    flags.add_argument("--out", type=Path, required=True, help="a new folder")
    flags.add_argument("--commit", default="HEAD", help="of the code (that of this checkout)")
    chosen = flags.parse_args(arguments)
    print(f"{chosen.out}: {pack(chosen.out, chosen.commit):,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
