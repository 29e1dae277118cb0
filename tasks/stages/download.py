"""Files of the catalogue, fetched and checked: mirrors first, then upstream.

In comes a ``File``, out goes a folder with that file under its own name. What the file holds is not known here.
"""

import hashlib
import io
import logging
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from infra import fetch as origins
from infra.errors import BadData, Fault, NetworkFault, NoSpace
from infra.fetch import Download, NotFound, Unreachable
from infra.processes import signals
from tasks.corpus.catalogue import EMBEDDED, File
from tasks.demo import corpus
from tasks.engine.stage import Facts, progress, site, stage

MAX_CONCURRENT_DOWNLOADS = 4
"""Files fetched at the same time."""
RETRY_PAUSES = (1.0, 2.0, 4.0)
"""Seconds before all origins that did not answer are asked again; from the first again when enough came."""
RESUME_AT_ONCE_BYTES = 1 << 20
"""Bytes for which an origin that broke off is asked again at once; one that gives a few at a time is not, for ever."""
HOW_TO_MIRROR = "Put the file under that path below a folder or URL, and name it in REPRO_MIRRORS (separated by spaces)"

log = logging.getLogger(__name__)


class _ChecksumMismatch(Exception):
    """What came is another file."""


@dataclass
class DownloadFailures:
    """What went wrong at each origin, by kind; makes the one fault that a person reads."""

    missing: list[str] = field(default_factory=list)
    unreachable: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def fault(self, file: File) -> Fault:
        """NetworkFault if trying again can help, else BadData."""
        told = [f"{file.path} could not be had."]
        if self.wrong:
            told.append(f"Expected {_expected_checksum(file)}; wrong: {'; '.join(self.wrong)}.")
        if self.unreachable:
            told.append(f"No answer: {'; '.join(f'{origin} ({why})' for origin, why in self.unreachable.items())}.")
        if self.missing:
            told.append(f"Not at: {', '.join(self.missing)}.")
        if not file.url:
            told.append("No address is published for it, only mirrors can have it.")
        if not self.wrong:
            told.append(f"{HOW_TO_MIRROR}.")
        return (NetworkFault if self.unreachable else BadData)(" ".join(told))


class _PartialDownload:
    """What has come of a file so far, an earlier try's share included, and its sums."""

    def __init__(self, path: Path, file: File) -> None:
        self.path, self.file = path, file
        self._stream: IO[bytes] = path.open("a+b")
        self._reset()
        self._stream.seek(0)
        while block := self._stream.read(origins.BLOCK):
            self._count(block)

    def add(self, block: bytes) -> None:
        self._stream.write(block)
        self._count(block)

    def restart(self) -> None:
        self._stream.truncate(0)
        self._reset()

    def discard(self) -> None:
        with suppress(OSError):  # what waits to be written to a full disk
            self._stream.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        self._stream.close()

    @property
    def is_complete(self) -> bool:
        fits = self.size == self.file.size or not self.file.size
        return fits and self._checksum() == (self.file.sha256 or self.file.md5)

    @property
    def what_is_wrong(self) -> str:
        """What is wrong with it."""
        if self.file.size and self.size > self.file.size:
            return f"more than the expected {self.file.size} bytes"
        if self._checksum() == (self.file.sha256 or self.file.md5):
            return f"{self.size} bytes instead of {self.file.size}"
        return f"{'sha256' if self.file.sha256 else 'md5'} {self._checksum()}, {self.size} bytes"

    def facts(self, origin: str) -> Facts:
        return {"bytes": self.size, "sha256": self._sha256.hexdigest(), "origin": origin}

    def _count(self, block: bytes) -> None:
        self.size += len(block)
        self._sha256.update(block)
        if not self.file.sha256:
            self._md5.update(block)

    def _checksum(self) -> str:
        return (self._sha256 if self.file.sha256 else self._md5).hexdigest()

    def _reset(self) -> None:
        self.size = 0
        self._sha256, self._md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)


def candidate_urls(file: File, mirrors: tuple[str, ...]) -> tuple[str, ...]:
    """Where to look, in order: each mirror by the relative path, then upstream; text that is generated, only there."""
    if file.url.startswith(EMBEDDED):
        return (file.url,)
    mirrored = tuple(f"{mirror.rstrip('/')}/{file.path}" for mirror in mirrors)
    return mirrored + ((file.url,) if file.url else ())


def fetch(file: File, folder: Path, mirrors: tuple[str, ...]) -> Facts:
    """Put the file into ``folder`` under its own name; gives its ``bytes``, ``sha256`` and ``origin``.

    What ``folder`` holds of it is gone on from where the origin can, after a cut too; origins that do not answer are
    asked again after growing pauses. Raises BadData when no origin has it or all have a wrong one, NetworkFault when
    one did not answer and none had it, NoSpace before the disk is full. After a NetworkFault or an interrupt the
    folder keeps what came, otherwise nothing.
    """
    failures, left = DownloadFailures(), list(candidate_urls(file, mirrors))
    copy, pauses = _PartialDownload(folder / file.name, file), list(RETRY_PAUSES)
    try:
        while True:
            failures.unreachable.clear()
            for origin in tuple(left):
                try:
                    while not _download_resumed(copy, origin):
                        pauses = list(RETRY_PAUSES)
                    return copy.facts(origin)
                except NotFound:
                    failures.missing.append(origin)
                    left.remove(origin)
                except _ChecksumMismatch as error:
                    failures.wrong.append(f"{origin} has {error}")
                    left.remove(origin)
                    told = "%s from %s has %s, expected is %s; it is not used"
                    log.warning(told, file.path, origin, error, _expected_checksum(file))
                except Unreachable as error:
                    failures.unreachable[origin] = str(error)
                    log.warning("%s did not come from %s: %s", file.path, origin, error)
            if not left or not pauses:
                raise failures.fault(file)
            signals.wait(pauses.pop(0))
    except Exception as error:
        if not copy.size or not isinstance(error, NetworkFault):
            copy.discard()
        raise
    finally:
        copy.close()


def _expected_checksum(file: File) -> str:
    return f"sha256 {file.sha256}" if file.sha256 else f"md5 {file.md5}"


def _download_resumed(copy: _PartialDownload, origin: str) -> bool:
    """``_download_missing``; False where the origin broke off, but is worth asking again at once, for what it gave."""
    before = copy.size
    try:
        _download_missing(copy, origin)
    except Unreachable:
        if copy.size >= before + RESUME_AT_ONCE_BYTES:
            return False
        raise
    return True


def _download_missing(copy: _PartialDownload, origin: str) -> None:
    """Fetch what is missing until the sum is right; raises _ChecksumMismatch with nothing kept, or what origins
    raise."""
    file = copy.file
    while not copy.is_complete:
        begun = copy.size
        try:
            with _open_source(origin, begun) as opened:
                if opened.begin != begun:
                    copy.restart()
                    begun = 0
                total = opened.begin + opened.length if opened.announced else file.size
                if file.size and total > file.size:
                    raise _ChecksumMismatch(f"{total} bytes instead of {file.size}")
                with RESERVATIONS.reserve(copy.path.parent, total - copy.size, file.path) as written:
                    for block in opened.blocks():
                        copy.add(block)
                        written(len(block))
                        if file.size and copy.size > file.size:
                            break
                        progress(copy.size, max(total, copy.size), file.path)
                if not opened.announced and copy.size < file.size:
                    raise Unreachable(f"broke off after {copy.size:,} of {file.size:,} bytes")
        except Unreachable:
            if copy.is_complete:  # it announced more than there is
                return
            raise
        except _ChecksumMismatch:
            copy.restart()
            raise
        if copy.is_complete:
            return
        told = copy.what_is_wrong
        copy.restart()
        if not begun:  # otherwise what was there before may be to blame
            raise _ChecksumMismatch(told)


class _DiskReservations:
    """What the files that are being fetched will still take."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._promised: dict[object, int] = {}

    @contextmanager
    def reserve(self, folder: Path, size: int, told: str) -> Iterator["_Reservation"]:
        """Keep ``size`` bytes; raises NoSpace when they are not there beside what others were promised."""
        promise = object()
        with self._lock:
            free = shutil.disk_usage(folder).free - sum(self._promised.values())
            if size > free:
                raise NoSpace(
                    f"no space left under {folder}: {told} needs {size:,} bytes and {max(free, 0):,} are free; "
                    "free some, or set REPRO_ROOT to another disk"
                )
            self._promised[promise] = max(size, 0)
        try:
            yield _Reservation(self._promised, promise)
        finally:
            with self._lock:
                del self._promised[promise]


@dataclass(frozen=True)
class _Reservation:
    promised: dict[object, int]
    promise: object

    def __call__(self, size: int) -> None:
        self.promised[self.promise] = max(0, self.promised[self.promise] - size)


RESERVATIONS = _DiskReservations()


@contextmanager
def _open_source(origin: str, begin: int) -> Iterator[Download]:
    if origin.startswith(EMBEDDED):
        stream = io.BytesIO(corpus.content(origin.removeprefix(EMBEDDED)))
        yield Download(stream, stream.read)
        return
    with origins.open_download(origin, begin) as opened:
        yield opened


@stage(version=1, retries=3, resume=True)
def download(out: Path, file: File) -> Facts:
    """One file of the catalogue.

    out/
      train.en.gz      under its own name, its sum checked
    """
    facts = fetch(file, out, site().mirrors)
    for stray in out.iterdir():  # an interrupted try's folder may hold more than it left there
        if stray.name != file.name:
            shutil.rmtree(stray) if stray.is_dir() else stray.unlink()
    return facts
