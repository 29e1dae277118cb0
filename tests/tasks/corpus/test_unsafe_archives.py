"""Archives that lead out of themselves, point elsewhere or swell are refused in one sentence; nothing is unpacked."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest
from small_text import all_lines

from infra.errors import BadData
from tasks.corpus import archives, plain


def archive(path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for entry, data in entries:
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize("name", ["/etc/passwd", "../a.en", "a/../../b", ".."])
def test_a_member_that_leads_out_spoils_its_archive(tmp_path: Path, name: str) -> None:
    path = archive(tmp_path / "a.tgz", (entry(name), b"x\n"), (entry("a.en"), b"x\n"))
    with pytest.raises(BadData, match="the archive is refused"):
        all_lines(path, "a.en")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_only_plain_files_are_text(tmp_path: Path, kind: bytes) -> None:
    (tmp_path / "secret").write_text("secret\n")
    path = archive(tmp_path / "a.tgz", (entry("a.en", kind, str(tmp_path / "secret")), b""))
    with pytest.raises(BadData, match="is a link, a folder or no plain file"):
        all_lines(path, "a.en")


def test_a_bomb_is_refused_as_file_as_archive_and_inside_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "ALWAYS_ALLOWED_BYTES", 1 << 20)
    zeros = b"\n" * (6 << 20)
    (tmp_path / "a.en.gz").write_bytes(gzip.compress(zeros))
    archive(tmp_path / "b.tgz", (entry("other"), zeros), (entry("a.en"), b"x\n"))
    archive(tmp_path / "c.tgz", (entry("a.en.gz"), gzip.compress(zeros)))
    for name, member in (("a.en.gz", ""), ("b.tgz", "a.en"), ("c.tgz", "a.en.gz")):
        with pytest.raises(BadData, match="refused as a decompression bomb"):
            all_lines(tmp_path / name, member)


def test_text_that_packs_well_is_no_bomb(tmp_path: Path) -> None:
    (tmp_path / "a.en.gz").write_bytes(gzip.compress(b"the same line\n" * 100_000))
    assert len(all_lines(tmp_path / "a.en.gz")) == 100_000


def test_a_line_without_end_is_refused_and_a_long_one_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.en").write_bytes(b"one\n" + b"x" * 10_000_000 + b"\nthree\n")
    assert [len(line) for line in all_lines(tmp_path / "a.en")] == [3, 10_000_000, 5]
    monkeypatch.setattr(plain, "LONGEST", 5_000_000)
    monkeypatch.setattr(plain, "BLOCK", 100_000)
    with pytest.raises(BadData, match="has a line 2 of more than 5,000,000 bytes"):
        all_lines(tmp_path / "a.en")


@pytest.mark.parametrize("name", ["a.tgz", "a.TGZ", "a.tar.zst"])
def test_an_archive_without_a_member_is_not_taken_for_text(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"whatever\n")
    with pytest.raises(BadData, match="is an archive: name the member"):
        all_lines(tmp_path / name)


@pytest.mark.parametrize("name", ["a.zip", "a.ZIP", "a.7z"])
@pytest.mark.parametrize("member", ["", "a.en"])
def test_an_archive_that_cannot_be_read_is_to_be_unpacked(tmp_path: Path, name: str, member: str) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04")
    with pytest.raises(BadData, match=f"{name} is no tar archive: unpack it"):
        all_lines(tmp_path / name, member)
