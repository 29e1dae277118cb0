"""Pack code and data for a visit of a GPU node (``visit.py pack``)."""

import io
import json
import shutil
import subprocess
import sys
import tarfile
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.machine import PROJECT_ROOT as ROOT

CODE = ("model", "benchmarks", "pyproject.toml")
RUN = "multi30k-ende"
"""The run that is packed, trained and translated."""


def pack(out: Path) -> None:
    """Write a folder with the committed code and the data of ``RUN``, whose shards the root must have."""
    import pyarrow.parquet as pq

    from flows.runner.request import RunRequest, make_plan

    request = RunRequest(RUN, until="shard").resolve()
    run = request.run
    rows = {(row.stage, row.item): row for row in make_plan(request).outcome.rows}
    parts = {
        "shards": ("shard", "train"),
        "dev": ("shard", run.dev),
        "vocabulary": ("learn_bpe", ""),
        "text": ("prepare_sets", run.dev),
    }
    missing = [place for place in parts.values() if place not in rows or rows[place].state != "cached"]
    if missing:
        sys.exit(f"root {request.site.root} has no {' '.join(missing[0]).strip()}: repro run {RUN} --until shard")
    out.mkdir(parents=True)
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    archive = subprocess.run([*git, "archive", commit, *CODE], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(out, filter="data")
    data = out / "data" / RUN
    for part, place in parts.items():
        shutil.copytree(rows[place].path, data / part, ignore=shutil.ignore_patterns("manifest.json"))
    references = pq.read_table(data / "text" / "pairs.parquet")["target"].to_pylist()
    (data / "reference.txt").write_text("".join(f"{line}\n" for line in references))
    settings = {name: asdict(getattr(run, name)) for name in ("model", "averaging", "decoding")}
    settings["training"] = asdict(replace(run.training, batching="packed", precision="bf16"))
    settings["normalise"] = asdict(run.filters.normalise)
    (data / "job.json").write_text(json.dumps(settings, indent=1) + "\n")
    (out / "visit.json").write_text(json.dumps({"commit": commit}) + "\n")
