"""A training of a second: a tiny model on made-up pieces, in this process or in forks of it, one for each rank."""

import gc
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.distributed import TCPStore

from model.config import Model, Training
from model.config.special_pieces import SPECIAL_TOKENS
from model.job import run_job
from model.train import work
from model.training.trainer import Trainer

# The first optimiser of a process takes a second to import its compiler: here once, not in every fork.
torch.optim.Adam([torch.zeros(1, requires_grad=True)])

SIZE = 24
MODEL = Model(layers=1, d_model=16, d_ff=32, heads=2, d_k=8, d_v=8, p_drop=0.1, norm="pre", max_positions=32)
TRAINING = Training(
    updates=12, batch_tokens=60, schedule="constant", warmup=2, peak=3e-3, checkpoint_every=4, keep=2, dev_every=6
)


def end_after(update: int) -> None:
    """Send SIGTERM twice in the middle of an update, as torchrun does."""
    advance = Trainer.advance_position

    def interrupted(self: Trainer, *args: object) -> None:
        advance(self, *args)  # type: ignore[arg-type]
        if self.position.update == update:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)

    Trainer.advance_position = interrupted  # type: ignore[method-assign, assignment]


def pairs(count: int, seed: int = 0, longest: int = 9) -> list[tuple[list[int], list[int]]]:
    """Sources of 1 to ``longest`` random pieces; the target is the source backwards."""
    random = np.random.default_rng(seed)
    sources = [random.integers(4, SIZE, random.integers(1, longest + 1)).tolist() for _ in range(count)]
    return [(source, source[::-1]) for source in sources]


def write_shards(folder: Path, rows: Sequence[tuple[list[int], list[int]]], *, files: int = 2) -> Path:
    folder.mkdir(parents=True)
    kind = pa.list_(pa.uint16())
    for number in range(files):
        part = [(f"small:{i}", *row) for i, row in enumerate(rows)][number::files]
        columns = {
            "pair_id": pa.array([row[0] for row in part], pa.string()),
            "source": pa.array([row[1] for row in part], kind),
            "target": pa.array([row[2] for row in part], kind),
        }
        table = pa.table(columns)
        with pa.OSFile(str(folder / f"{number:05d}.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
            out.write_table(table, max_chunksize=7)
    return folder


def write_text(folder: Path, lines: Sequence[str]) -> Path:
    """A set as the stage ``prepare_sets`` writes it, as far as the job reads it."""
    folder.mkdir(parents=True)
    table = {"pair_id": [f"small:{number}" for number in range(len(lines))], "source": lines}
    pq.write_table(pa.table(table), folder / "pairs.parquet")
    return folder


def write_vocabulary(folder: Path, size: int = SIZE) -> Path:
    folder.mkdir(parents=True)
    pieces = [*SPECIAL_TOKENS, *(f"p{i}" for i in range(len(SPECIAL_TOKENS), size))]
    words = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, [], ignore_merges=True))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.save(str(folder / "tokenizer.json"))
    return folder


def write_job(
    root: Path, *, model: Model = MODEL, training: Training = TRAINING, name: str = "run", **site: Any
) -> Path:
    """``job.json`` over 40 pairs, which are written once per ``root``; returns its path."""
    if not (root / "shards").exists():
        write_shards(root / "shards", pairs(40))
        write_shards(root / "dev", pairs(10, seed=1))
        write_vocabulary(root / "vocabulary")
    out = root / name
    out.mkdir(exist_ok=True)
    settings = {"device": "cpu", "threads": 1, "log_seconds": 0.0, "resume_seconds": 1e9} | site
    job = {
        "config": {"model": asdict(model), "training": asdict(training)},
        "inputs": {name: str(root / name) for name in ("shards", "dev", "vocabulary")},
        "out": str(out),
        "site": settings,
    }
    (out / "job.json").write_text(json.dumps(job))
    return out / "job.json"


def fork(path: Path, before: Callable[[], None] = lambda: None) -> int:
    """Start the training of a job in a fork of this process; its process id."""
    (path.parent / "exit.json").unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        gc.freeze()  # see ForkLauncher in small_pipeline.py
        status = 1
        try:
            sys.stderr = (path.parent / "job.log").open("a")
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            before()
            sys.argv = ["train", str(path)]
            run_job(work)
            status = 0
        finally:
            os._exit(status)
    return child


def run(path: Path, before: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Train to the end in a fork; what ``exit.json`` says."""
    os.waitpid(fork(path, before), 0)
    answer: dict[str, Any] = json.loads((path.parent / "exit.json").read_text())
    return answer


def run_until_killed(path: Path, before: Callable[[], None]) -> None:
    """Train in a fork that kills itself, as ``before`` has prepared."""
    assert os.waitstatus_to_exitcode(os.waitpid(fork(path, before), 0)[1]) == -signal.SIGKILL


def run_ranks(path: Path, ranks: int, before: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Train to the end with as many ranks, each a fork of this process; what ``exit.json`` says.

    They begin when all are forked: a fork while the store's thread serves another could inherit a lock that it holds.
    """
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    peers = {"WORLD_SIZE": f"{ranks}", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{store.port}"}
    peers["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    start, all_forked = os.pipe()

    def wait_for_all(rank: int) -> None:
        os.environ.update(peers | {"RANK": f"{rank}"})
        os.close(all_forked)
        os.read(start, 1)  # ends when no process has the other side open
        before()

    forks = [fork(path, partial(wait_for_all, rank)) for rank in range(ranks)]
    os.close(all_forked)
    try:
        assert [os.waitpid(each, 0)[1] for each in forks] == [0] * ranks, (path.parent / "job.log").read_text()
    finally:
        os.close(start)
        for each in forks:
            with suppress(OSError):  # it has ended
                os.kill(each, signal.SIGKILL)
                os.waitpid(each, 0)
    answer: dict[str, Any] = json.loads((path.parent / "exit.json").read_text())
    return answer


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path.parent / "metrics.jsonl").read_text().splitlines()]


def weights(path: Path) -> dict[str, bytes]:
    """Every checkpoint's weights, as bytes."""
    return {file.parent.name: file.read_bytes() for file in sorted(path.parent.glob("checkpoints/*/model.safetensors"))}


def in_float64() -> None:
    """Make everything that follows in this process compute in float64.

    Sums over different ranks, micro-batches or layers round differently, and so does each type of CPU. Where a
    gradient is almost zero, Adam turns the rounding error into a full step, and a ReLU may switch sides: in float32
    the weights of two trainings can differ by a whole update after a few dozen updates. In float64 such differences
    stay far below one update.
    """
    torch.set_default_dtype(torch.float64)


def assert_same_training(one: Path, other: Path) -> None:
    """Assert that two trainings in float64 wrote the same checkpoints; a skipped update would differ by about the
    learning rate."""
    folders = [job.parent / "checkpoints" for job in (one, other)]
    updates = sorted(path.parent.name for path in folders[0].glob("*/model.safetensors"))
    assert updates
    for update in updates:
        a, b = (load_file(folder / update / "model.safetensors") for folder in folders)
        assert {tensor.dtype for tensor in (*a.values(), *b.values())} == {torch.float64}
        assert a.keys() == b.keys()
        for name in a:
            torch.testing.assert_close(a[name], b[name], atol=1e-7, rtol=0, msg=f"{name} of update {update}")
