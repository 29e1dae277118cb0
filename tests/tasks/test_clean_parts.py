"""The artifact is the same, byte for byte, for any number of parts, buckets' rows and workers, also when one dies."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from test_clean import AS_READ, corpus_of

from infra.faults import BadData
from infra.processes import die_with_parent
from tasks import clean, parts
from tasks.filters import Distinct, Empty, Filters, Length, LengthRatio

HOUSE = Path(__file__).resolve().parents[2]
FILTERS = Filters((Empty(), Length(1, 12), Distinct("source"), LengthRatio(4.0), Distinct(near=True)))
PAIRS = 3_000


def lines(seed: int, count: int) -> list[str]:
    """Lines that repeat themselves, also in other case and with other marks."""
    chance = random.Random(seed)
    words = ["dog", "cat", "runs", "The", "a,", "b.", "Ü"]
    made = [" ".join(chance.choices(words, k=chance.choice([0, 1, 2, 2, 3, 3, 3, 4, 9, 13]))) for _ in range(count)]
    return [line.upper() if chance.random() < 0.1 else f"{line}!" * (chance.random() < 0.9) for line in made]


def digests(folder: Path, filters: Filters = FILTERS) -> tuple[dict[str, int], bytes, bytes]:
    folder.mkdir()
    corpus, archives = corpus_of(
        folder / "in", ("p", lines(1, PAIRS), lines(2, PAIRS)), ("q", lines(3, 200), lines(4, 200))
    )
    out = folder / "out"
    out.mkdir()
    facts = clean.clean.body(out, corpus, archives, (), filters)
    assert sorted(path.name for path in out.iterdir()) == ["pairs.parquet", "rejected.parquet"]
    return facts["rejected_by"], *((out / name).read_bytes() for name in ("pairs.parquet", "rejected.parquet"))


@pytest.fixture
def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.reading.pairs.__defaults__", ("", "", 400))
    monkeypatch.setattr(clean, "BUCKET_BYTES", 20_000)


@pytest.mark.usefixtures("small_frames")
def test_parts_and_workers_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = digests(tmp_path / "plain")
    assert min(plain[0].values()) > 0, "every rule has work"
    monkeypatch.setattr(clean, "PART_BYTES", 5_000)
    assert digests(tmp_path / "parts") == plain
    monkeypatch.setenv("REPRO_WORKERS", "2")
    assert digests(tmp_path / "workers") == plain


def test_a_part_meets_every_pair_of_its_hash(tmp_path: Path) -> None:
    frame = pl.DataFrame({"value": [n * 2**57 for n in (3, 100, 3, 7, 100, 64)], "at": range(6)}).cast(pl.UInt64)
    parts.write_batches(tmp_path / "a.arrow", frame, 4)
    parts.write_batches(tmp_path / "b.arrow", frame.clear(), 4)
    batches = [
        parts.read_batch([tmp_path / "a.arrow", tmp_path / "b.arrow"], part)["at"].to_list() for part in range(4)
    ]
    assert batches == [[0, 2, 3], [], [5], [1, 4]]


def test_a_fault_in_a_part_leaves_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_WORKERS", "2")
    corpus, archives = corpus_of(tmp_path / "in", ("p", ["a"] * 7, ["x"] * 5))
    (tmp_path / "out").mkdir()
    with pytest.raises(BadData, match="has 7 lines"):
        clean.clean.body(tmp_path / "out", corpus, archives, (), Filters(normalise=AS_READ))


SLOW = """
import os, sys, time
sys.path[:0] = {path!r}
from pathlib import Path
import tasks.parts as parts
judge = getattr(parts, "judge", parts.Parts.judge)
parts.judge = judge  # Dask reads this more than once
def slowly(self, number, *rest):
    # The first worker to come here says who it is, and is killed while it works.
    try:
        told = os.open({told!r}, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return judge(self, number, *rest)
    os.write(told, str(os.getpid()).encode())
    os.close(told)
    time.sleep(600)
parts.Parts.judge = slowly
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a Dask scheduler with two worker processes, and a file that the one to be killed writes."""
    pytest.importorskip("distributed")
    told, address, preload = tmp_path / "told", tmp_path / "scheduler.json", tmp_path / "slow.py"
    preload.write_text(SLOW.format(path=[str(HOUSE)], told=str(told)))
    environment = os.environ | {"PYTHONPATH": str(HOUSE)}
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> None:
        command = [sys.executable, "-m", "distributed.cli." + words[0], *words[1:]]
        started.append(subprocess.Popen(command, env=environment, preexec_fn=die_with_parent(), cwd=tmp_path))

    def until(holds: Any) -> None:
        deadline = time.monotonic() + 120
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.1)

    try:
        start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", f"--scheduler-file={address}")
        until(address.exists)
        for name in ("one", "two"):
            words = (
                "--no-dashboard",
                "--no-nanny",
                "--local-directory=.",
                "--nthreads=1",
                f"--name={name}",
                f"--preload={preload}",
            )
            start("dask_worker", f"--scheduler-file={address}", *words)
        from distributed import Client

        with Client(scheduler_file=str(address), set_as_default=False) as client:
            client.wait_for_workers(2, timeout=120)
        yield json.loads(address.read_text())["address"], told
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.usefixtures("small_frames")
def test_a_worker_of_a_cluster_that_is_killed_does_not_show(
    tmp_path: Path, cluster: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    plain = digests(tmp_path / "plain")
    address, told = cluster
    killed: list[int] = []

    def kill() -> None:
        while not (told.exists() and told.read_text()):
            time.sleep(0.05)
        killed.append(int(told.read_text()))
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    monkeypatch.setenv("REPRO_DASK", address)
    assert digests(tmp_path / "cluster") == plain
    assert killed
