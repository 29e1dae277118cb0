"""A server that misbehaves costs time, never a wrong file: cuts, 503, wrong lengths, wrong bytes, no ranges, stalls."""

import hashlib
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback_mirror import Mirror, Mood, served

from infra import fetch as origins
from infra.errors import BadData, Fault, NetworkFault, NoSpace
from infra.processes import signals
from tasks.corpus.catalogue import File
from tasks.stages import download as module
from tasks.stages.download import RESERVATIONS, fetch

DATA = random.Random(7).randbytes(300_000)
PATH = "some/train.en.gz"
FILE = File(PATH, "", hashlib.sha256(DATA).hexdigest(), size=len(DATA))
UNSIZED = File(PATH, "", "", hashlib.md5(DATA).hexdigest())


@pytest.fixture(autouse=True)
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were asked for; none is made."""
    pauses: list[float] = []
    monkeypatch.setattr(signals, "wait", pauses.append)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return pauses


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    with served({PATH: DATA}) as mirror:
        yield mirror


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def whole(folder: Path) -> bool:
    return [path.name for path in folder.iterdir()] == ["train.en.gz"] and (folder / "train.en.gz").read_bytes() == DATA


@pytest.mark.parametrize("file", [FILE, UNSIZED])
def test_a_cut_is_gone_on_from_by_range(out: Path, mirror: Mirror, file: File) -> None:
    mirror.moods[PATH] = [Mood(cut=100_000), Mood(cut=50_000)]
    fetch(file, out, (mirror.address,))
    assert whole(out)
    assert [asked for _, asked in mirror.asked] == ["", "bytes=100000-", "bytes=150000-"]


def test_a_server_without_ranges_begins_from_zero(out: Path, mirror: Mirror) -> None:
    mirror.moods[PATH] = [Mood(cut=100_000), Mood(ranges=False)]
    fetch(FILE, out, (mirror.address,))
    assert whole(out)


def test_pauses_grow_and_end(out: Path, mirror: Mirror, waited: list[float]) -> None:
    mirror.always = Mood(status=503)
    with pytest.raises(NetworkFault, match="status 503"):
        fetch(FILE, out, (mirror.address,))
    assert waited == sorted(set(waited)) == list(module.RETRY_PAUSES)
    assert list(out.iterdir()) == []


def test_503_passes(out: Path, mirror: Mirror, waited: list[float]) -> None:
    mirror.moods[PATH] = [Mood(status=503), Mood(status=429)]
    fetch(FILE, out, (mirror.address,))
    assert whole(out)
    assert len(waited) == 2


def test_a_server_that_says_nothing_more_is_left(out: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins, "READ_TIMEOUT_SECONDS", 0.2)
    mirror.moods[PATH] = [Mood(stall=120_000), Mood(stall=0)]
    fetch(FILE, out, (mirror.address,))
    assert whole(out)
    assert mirror.asked[-1] == (PATH, "bytes=120000-")


def test_a_server_that_gives_a_few_bytes_at_a_time_is_left(
    out: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origins, "READ_TIMEOUT_SECONDS", 0.5)
    mirror.moods[PATH] = [Mood(trickle=100)]
    fetch(FILE, out, (mirror.address,))
    assert whole(out)
    assert 0 < int(mirror.asked[1][1].removeprefix("bytes=").removesuffix("-")) < 30_000, "and gone on from"


def test_a_later_try_goes_on_from_what_an_earlier_one_left(out: Path, mirror: Mirror) -> None:
    mirror.always = Mood(cut=20_000)
    with pytest.raises(NetworkFault, match="broke off"):
        fetch(FILE, out, (mirror.address,))
    left = (out / "train.en.gz").stat().st_size
    assert left == 20_000 * (1 + len(module.RETRY_PAUSES))
    mirror.always = Mood()
    fetch(FILE, out, (mirror.address,))
    assert mirror.asked[-1] == (PATH, f"bytes={left}-")
    assert whole(out)


@pytest.mark.parametrize("begin", [b"not of this file at all", DATA[:1000] + b"x", DATA + b"more", DATA[::-1]])
@pytest.mark.parametrize("file", [FILE, UNSIZED])
def test_a_wrong_beginning_is_not_held_against_the_server(out: Path, mirror: Mirror, begin: bytes, file: File) -> None:
    (out / "train.en.gz").write_bytes(begin)
    fetch(file, out, (mirror.address,))
    assert whole(out)


def test_wrong_bytes_send_us_to_the_next_mirror(out: Path, mirror: Mirror) -> None:
    with served({PATH: DATA}, Mood(wrong=True)) as bad:
        facts = fetch(FILE, out, (bad.address, mirror.address))
        assert facts["origin"].startswith(mirror.address)
        assert whole(out)
        with pytest.raises(BadData, match=FILE.sha256):
            fetch(FILE, shutil.copytree(out, out.parent / "b", ignore=lambda *_: ["train.en.gz"]), (bad.address,))
    assert list((out.parent / "b").iterdir()) == []


def test_the_next_mirror_goes_on_where_the_first_broke_off(out: Path, mirror: Mirror) -> None:
    with served({PATH: DATA}, Mood(cut=90_000)) as weak:
        fetch(FILE, out, (weak.address, mirror.address))
    assert mirror.asked == [(PATH, "bytes=90000-")]
    assert whole(out)


@pytest.mark.parametrize("file", [FILE, UNSIZED])
def test_a_length_that_is_announced_wrong(out: Path, mirror: Mirror, file: File) -> None:
    mirror.always = Mood(more=-1000)
    with pytest.raises(BadData, match="299000 bytes"):
        fetch(file, out, (mirror.address,))
    assert list(out.iterdir()) == []
    mirror.always = Mood(more=1000)
    if file.size:
        with pytest.raises(BadData, match="301000 bytes instead of 300000"):
            fetch(file, out, (mirror.address,))
    else:  # the sum is right, so nothing is missing
        fetch(file, out, (mirror.address,))
        assert whole(out)


def test_without_an_announced_length_a_cut_is_seen_by_the_known_one(out: Path, mirror: Mirror) -> None:
    mirror.moods[PATH] = [Mood(silent_length=True, cut=5_000)]
    mirror.always = Mood(silent_length=True)
    fetch(FILE, out, (mirror.address,))
    assert whole(out)
    assert mirror.asked[-1] == (PATH, "bytes=5000-")


def test_another_range_than_the_one_asked_for_is_not_taken(out: Path, mirror: Mirror) -> None:
    mirror.moods[PATH] = [Mood(cut=1_000), Mood(range_from=500), Mood()]
    fetch(FILE, out, (mirror.address,))
    assert whole(out)


class _Disk(NamedTuple):
    total: int
    used: int
    free: int


def test_space_is_checked_beforehand_for_all_that_is_under_way(
    out: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Disk(10**6, 0, len(DATA) + 1_000))
    with (
        RESERVATIONS.reserve(out, 1_001, "another file"),
        pytest.raises(NoSpace, match="train.en.gz needs 300,000 bytes"),
    ):
        fetch(FILE, out, (mirror.address,))
    assert list(out.iterdir()) == []
    fetch(FILE, out, (mirror.address,))
    assert whole(out)


mood = st.builds(
    Mood,
    status=st.sampled_from([200, 200, 200, 500, 503, 429, 404]),
    cut=st.sampled_from([0, 1, 1_000, 299_999, 1 << 62]),
    more=st.sampled_from([0, 0, 0, -10, 10]),
    ranges=st.booleans(),
    wrong=st.sampled_from([False, False, True]),
    silent_length=st.booleans(),
    range_from=st.sampled_from([-1, -1, 0, 7]),
)


@given(moods=st.lists(mood, max_size=6), file=st.sampled_from([FILE, UNSIZED, replace(FILE, size=0)]))
@settings(max_examples=80, deadline=None)
def test_whatever_happens_the_file_is_right_or_there_is_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, moods: list[Mood], file: File
) -> None:
    out = tmp_path_factory.mktemp("out")
    with served({PATH: DATA}) as mirror:
        mirror.moods[PATH] = moods
        fault: Fault | None = None
        try:
            facts = fetch(file, out, (mirror.address,))
        except (BadData, NetworkFault) as error:
            fault = error
    if fault is None:
        assert whole(out)
        assert facts["sha256"] == FILE.sha256
    else:
        assert "\n" not in str(fault)
        assert fault.retry or list(out.iterdir()) == []
