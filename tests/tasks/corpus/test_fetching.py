"""A file is downloaded whole and right or not at all, whatever the servers do: cuts, 503, wrong bytes, stalls."""

import errno
import hashlib
import logging
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback_mirror import Mirror, Reply, served

from infra import fetch
from infra.errors import BadData, Fault, NetworkFault, NoSpace
from tasks.corpus.catalogue import File
from tasks.corpus.fetching import fetch_file

DATA = random.Random(7).randbytes(300_000)
PATH = "some/train.en.gz"
FILE = File(PATH, "", hashlib.sha256(DATA).hexdigest(), size=len(DATA))
UNSIZED = File(PATH, "", "", hashlib.md5(DATA).hexdigest())


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


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
def test_a_cut_download_resumes_by_range(out: Path, mirror: Mirror, file: File) -> None:
    mirror.replies[PATH] = [Reply(cut=100_000), Reply(cut=80_000)]
    fetch_file(file, out, (mirror.address,))
    assert whole(out)
    assert [byte_range for _, byte_range in mirror.requests] == ["", "bytes=100000-", "bytes=180000-"]


def test_a_server_that_gives_a_few_bytes_at_a_time_is_abandoned(
    out: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "READ_TIMEOUT_SECONDS", 0.5)
    mirror.replies[PATH] = [Reply(trickle=100)]
    with pytest.raises(NetworkFault):
        fetch_file(FILE, out, (mirror.address,))
    left = (out / "train.en.gz").stat().st_size
    assert 0 < left < 30_000
    fetch_file(FILE, out, (mirror.address,))
    assert whole(out)
    assert mirror.requests[-1] == (PATH, f"bytes={left}-"), "and resumed"


def test_a_later_attempt_resumes_the_partial_file(out: Path, mirror: Mirror) -> None:
    mirror.always = Reply(cut=20_000)
    with pytest.raises(NetworkFault, match="broke off"):
        fetch_file(FILE, out, (mirror.address,))
    left = (out / "train.en.gz").stat().st_size
    assert left == 20_000
    mirror.always = Reply()
    fetch_file(FILE, out, (mirror.address,))
    assert mirror.requests[-1] == (PATH, f"bytes={left}-")
    assert whole(out)


@pytest.mark.parametrize("begin", [b"not of this file at all", DATA[:1000] + b"x", DATA + b"more", DATA[::-1]])
@pytest.mark.parametrize("file", [FILE, UNSIZED])
def test_a_wrong_beginning_is_downloaded_again(
    tmp_path: Path, out: Path, mirror: Mirror, begin: bytes, file: File
) -> None:
    for place in (mirror.address, in_folder(tmp_path / "mirror", DATA)):
        (out / "train.en.gz").write_bytes(begin)
        fetch_file(file, out, (place,))
        assert whole(out)


def test_wrong_bytes_are_logged_and_the_next_mirror_is_used(
    out: Path, mirror: Mirror, caplog: pytest.LogCaptureFixture
) -> None:
    with served({PATH: DATA}, Reply(wrong=True)) as bad, caplog.at_level(logging.WARNING):
        facts = fetch_file(FILE, out, (bad.address, mirror.address))
    assert facts == {"bytes": len(DATA), "sha256": FILE.sha256, "origin": f"{mirror.address}/{PATH}"}
    assert whole(out)
    assert FILE.sha256 in caplog.text
    assert hashlib.sha256(bytes(255 - byte for byte in DATA)).hexdigest() in caplog.text


def in_folder(folder: Path, data: bytes) -> str:
    """A mirror that is a folder."""
    (folder / PATH).parent.mkdir(parents=True)
    (folder / PATH).write_bytes(data)
    return str(folder)


def test_mirrors_come_before_upstream_which_has_what_no_mirror_has(tmp_path: Path, out: Path, mirror: Mirror) -> None:
    file = replace(FILE, url=f"{mirror.address}/{PATH}")
    assert fetch_file(file, out, (str(tmp_path / "empty"), f"{mirror.address}/absent"))["origin"] == file.url
    (out / file.name).unlink()
    first = in_folder(tmp_path / "mirror", DATA)
    assert fetch_file(file, out, (str(tmp_path / "empty"), first))["origin"] == f"{first}/{PATH}"
    assert whole(out)


@pytest.mark.parametrize("data", [b"other", DATA + b"x", DATA[:-1], b""])
@pytest.mark.parametrize("file", [replace(FILE, size=0), UNSIZED])
def test_wrong_everywhere_names_both_checksums_and_keeps_nothing(
    tmp_path: Path, out: Path, data: bytes, file: File
) -> None:
    with pytest.raises(BadData, match=file.sha256 or file.md5) as caught:
        fetch_file(file, out, (in_folder(tmp_path / "a", data),))
    assert (hashlib.sha256 if file.sha256 else hashlib.md5)(data).hexdigest() in str(caught.value)
    assert list(out.iterdir()) == []


def test_found_nowhere_names_each_url_and_what_to_do(tmp_path: Path, out: Path, mirror: Mirror) -> None:
    mirror.replies[PATH] = [Reply(status=403)]
    url = f"{mirror.address}/absent/train.en.gz"
    with pytest.raises(BadData) as caught:
        fetch_file(replace(FILE, url=url), out, (str(tmp_path / "empty"), mirror.address))
    for part in (url, str(tmp_path / "empty"), f"{mirror.address}/{PATH}", "REPRO_MIRRORS"):
        assert part in str(caught.value)


def test_secrets_of_addresses_are_used_and_stand_in_no_fact_error_or_log(
    out: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query = "X-Amz-Signature=planted-SECRET-1&token=planted-SECRET-2"
    with served({f"{PATH}?{query}": DATA}) as signed:
        url = f"{signed.address}/{PATH}?{query}"
        facts = fetch_file(replace(FILE, url=url), out, (f"{signed.address.replace('//', '//me:planted-SECRET-3@')}",))
        assert facts["origin"] == f"{signed.address}/{PATH}?X-Amz-Signature=***&token=***"
        shutil.rmtree(out)
        out.mkdir()
        wrong = replace(FILE, url=url, sha256="0" * 64)
        with pytest.raises(Fault) as caught:
            fetch_file(wrong, out, (f"https://planted-SECRET-4@127.0.0.1:9/?{query}", f"nothing://x?{query}"))
    assert f"{PATH}?X-Amz-Signature=***" in f"{caught.value}"
    assert "planted" not in f"{caught.value}{caplog.text}"


def test_a_full_disk_is_not_taken_for_a_network_fault(
    out: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tasks.corpus.fetching.progress", full)
    with pytest.raises(OSError, match="No space left") as caught:
        fetch_file(FILE, out, (mirror.address,))
    assert caught.value.errno == errno.ENOSPC
    assert list(out.iterdir()) == []


class _Disk(NamedTuple):
    total: int
    used: int
    free: int


def test_a_file_that_does_not_fit_is_refused_before_its_first_byte(
    out: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Disk(10**6, 0, len(DATA) - 1))
    with pytest.raises(NoSpace):
        fetch_file(FILE, out, (mirror.address,))
    assert list(out.iterdir()) == []


reply = st.builds(
    Reply,
    status=st.sampled_from([200, 200, 200, 500, 503, 429, 404]),
    cut=st.sampled_from([0, 1, 1_000, 299_999, 1 << 62]),
    more=st.sampled_from([0, 0, 0, -10, 10]),
    ranges=st.booleans(),
    wrong=st.sampled_from([False, False, True]),
    silent_length=st.booleans(),
    range_from=st.sampled_from([-1, -1, 0, 7]),
)


@given(replies=st.lists(reply, max_size=6), file=st.sampled_from([FILE, UNSIZED, replace(FILE, size=0)]))
@settings(max_examples=50)
def test_whatever_happens_the_file_is_right_or_the_error_is_one_line(
    tmp_path_factory: pytest.TempPathFactory, replies: list[Reply], file: File
) -> None:
    out = tmp_path_factory.mktemp("out")
    with served({PATH: DATA}) as mirror:
        mirror.replies[PATH] = replies
        fault: Fault | None = None
        try:
            facts = fetch_file(file, out, (mirror.address,))
        except (BadData, NetworkFault) as error:
            fault = error
    if fault is None:
        assert whole(out)
        assert facts["sha256"] == FILE.sha256
    else:
        assert "\n" not in str(fault)
        assert fault.retry or list(out.iterdir()) == []
