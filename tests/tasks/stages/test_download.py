"""A file arrives whole and right, or not at all; what went wrong is said once and clearly."""

import errno
import hashlib
import http.server
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from infra.errors import BadData, NetworkFault
from tasks.corpus.catalogue import DEMO, File, files
from tasks.demo import corpus
from tasks.stages.download import download, fetch

DATA = b"one\ntwo\n" * 1000
SHA256 = hashlib.sha256(DATA).hexdigest()
FILE = File("some/train.en.gz", "", SHA256, size=len(DATA))


def mirror(folder: Path, data: bytes, path: str = FILE.path) -> str:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(data)
    return str(folder)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.stages.download.RETRY_PAUSES", ())
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


class Server(http.server.BaseHTTPRequestHandler):
    """Answers by the first part of the path: right, wrong, absent, refused, broken (5xx), short (breaks off)."""

    def do_GET(self) -> None:
        way = self.path.split("/")[1]
        status = {"absent": 404, "refused": 403, "broken": 503}.get(way, 200)
        data = DATA if way in ("right", "short") else b"other"
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[:100] if way == "short" else data)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_mirrors_come_before_upstream(tmp_path: Path, out: Path, web: str) -> None:
    where = mirror(tmp_path / "mirror", DATA)
    file = replace(FILE, url=f"{web}/wrong/train.en.gz")
    facts = fetch(file, out, (str(tmp_path / "empty"), where))
    assert facts == {"bytes": len(DATA), "sha256": SHA256, "origin": f"{where}/{FILE.path}"}
    assert [path.name for path in out.iterdir()] == ["train.en.gz"]
    assert (out / "train.en.gz").read_bytes() == DATA


def test_upstream_serves_what_no_mirror_has(tmp_path: Path, out: Path, web: str) -> None:
    url = f"{web}/right/train.en.gz"
    facts = fetch(replace(FILE, url=url), out, (str(tmp_path / "empty"), f"{web}/absent"))
    assert facts["origin"] == url
    assert (out / "train.en.gz").read_bytes() == DATA


def test_a_mirror_may_be_an_address(out: Path, web: str) -> None:
    assert fetch(FILE, out, (f"{web}/right/",))["origin"] == f"{web}/right/{FILE.path}"


def test_a_wrong_file_is_warned_about_and_passed_over(
    tmp_path: Path, out: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong, right = mirror(tmp_path / "a", b"other"), mirror(tmp_path / "b", DATA)
    with caplog.at_level(logging.WARNING):
        assert fetch(FILE, out, (wrong, right))["origin"].startswith(right)
    assert SHA256 in caplog.text
    assert hashlib.sha256(b"other").hexdigest() in caplog.text


@pytest.mark.parametrize("data", [b"other", DATA + b"x", DATA[:-1], b""])
def test_wrong_everywhere_names_both_sums_and_keeps_nothing(tmp_path: Path, out: Path, data: bytes) -> None:
    file = replace(FILE, size=0)
    with pytest.raises(BadData) as caught:
        fetch(file, out, (mirror(tmp_path / "a", data),))
    assert SHA256 in str(caught.value)
    assert hashlib.sha256(data).hexdigest() in str(caught.value)
    assert list(out.iterdir()) == []


def test_a_right_sum_with_a_wrong_size_is_refused(tmp_path: Path, out: Path) -> None:
    for size in (len(DATA) + 1, 10):
        with pytest.raises(BadData, match=str(size)):
            fetch(replace(FILE, size=size), out, (mirror(tmp_path / "a", DATA),))


def test_md5_serves_where_no_sha256_is_published(tmp_path: Path, out: Path) -> None:
    file = File("some/train.en.gz", md5=hashlib.md5(DATA).hexdigest())
    where = mirror(tmp_path / "a", DATA)
    assert fetch(file, out, (where,))["sha256"] == SHA256
    (out / file.name).unlink()
    with pytest.raises(BadData, match=hashlib.md5(b"other").hexdigest()):
        fetch(file, out, (mirror(tmp_path / "b", b"other"),))


def test_found_nowhere_says_where_it_looked_and_what_to_do(tmp_path: Path, out: Path, web: str) -> None:
    url = f"{web}/absent/train.en.gz"
    with pytest.raises(BadData) as caught:
        fetch(replace(FILE, url=url), out, (str(tmp_path / "empty"), f"{web}/refused"))
    for part in (url, str(tmp_path / "empty"), f"{web}/refused", "REPRO_MIRRORS"):
        assert part in str(caught.value)
    with pytest.raises(BadData, match="No address is published for it, only mirrors"):
        fetch(FILE, out, ())


@pytest.mark.parametrize("way", ["broken", "short"])
def test_a_server_that_fails_is_worth_another_try(out: Path, web: str, way: str) -> None:
    with pytest.raises(NetworkFault, match=f"{web}/{way}") as caught:
        fetch(FILE, out, (f"{web}/{way}",))
    assert caught.value.retry
    assert [path.read_bytes() for path in out.iterdir()] == ([DATA[:100]] if way == "short" else [])


def test_nobody_listening_is_a_network_fault(out: Path) -> None:
    with pytest.raises(NetworkFault, match="REPRO_MIRRORS"):
        fetch(replace(FILE, url="http://127.0.0.1:9/train.en.gz"), out, ())


def test_a_full_disk_is_not_taken_for_a_network_fault(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = mirror(tmp_path / "a", DATA)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tasks.stages.download.progress", full)
    with pytest.raises(OSError, match="No space left") as caught:
        fetch(FILE, out, (where,))
    assert caught.value.errno == errno.ENOSPC
    assert list(out.iterdir()) == []


def test_embedded_text_needs_no_origin(out: Path) -> None:
    for file in files(DEMO):
        (out / "left by another hand").write_text("x")
        facts = download.body(out, file)
        assert [path.name for path in out.iterdir()] == [file.name]
        assert facts["sha256"] == file.sha256
        assert (out / file.name).read_bytes() == corpus.content(file.path)
