"""The artifact is the same, byte for byte, for any number of parts, buckets' rows and workers, also when one dies."""

import random
from pathlib import Path

import pytest
from dask_cluster import losing_a_worker

from infra.errors import BadConfiguration
from tasks.cleaning import partitions
from tasks.cleaning.filters import Distinct, Empty, Filters, Length, LengthRatio
from tasks.stages import clean
from tests.tasks.stages.test_clean import AS_READ, corpus_of

RULES = Empty(), Length(1, 12), Distinct("source"), LengthRatio(4.0), Distinct(near=True)
FILTERS = Filters(RULES, max_rejected=1)
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
    monkeypatch.setattr("tasks.corpus.reading.ROWS", 400)
    monkeypatch.setattr(clean, "BUCKET_BYTES", 20_000)


@pytest.mark.usefixtures("small_frames")
def test_parts_and_workers_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = digests(tmp_path / "plain")
    assert min(plain[0].values()) > 0, "every rule has work"
    text = sum(path.stat().st_size for path in (tmp_path / "plain/in").rglob("*") if path.is_file())
    monkeypatch.setattr(clean, "PART_BYTES", text // 15)
    made: list[int] = []
    monkeypatch.setattr(clean, "Partitions", lambda *of: made.append(of[-1]) or partitions.Partitions(*of))
    assert digests(tmp_path / "parts") == plain
    monkeypatch.setenv("REPRO_WORKERS", "2")
    assert digests(tmp_path / "workers") == plain
    assert made == [16, 16]


def test_a_rule_that_other_processes_cannot_be_handed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(Empty):
        """Like one of a user's file that is no module."""

    filters = Filters((Mine(),), AS_READ, max_rejected=1)
    plain = digests(tmp_path / "plain", filters)
    assert plain[0]["mine"] > 0
    monkeypatch.setenv("REPRO_WORKERS", "2")
    with pytest.raises(BadConfiguration, match=r"Mine cannot be sent to other processes .*REPRO_WORKERS=1"):
        digests(tmp_path / "workers", filters)


@pytest.mark.usefixtures("small_frames")
def test_a_worker_of_a_cluster_that_is_killed_does_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = digests(tmp_path / "plain")
    with losing_a_worker(tmp_path / "dask", "tasks.cleaning.partitions", "Partitions", "apply_filters") as address:
        monkeypatch.setenv("REPRO_DASK", address)
        assert digests(tmp_path / "cluster") == plain
