"""Unfinished work in a bucket, so that another machine can go on with it where this one is lost.

    <stage>/<key>/resume-<inputs>/index.json   names and sums of the files, attempt, and a mark of its own; written last
    <stage>/<key>/resume-<inputs>/<sha256>     a file

A snapshot is taken while the work goes on, and half of one is never seen. The index is replaced only where it is still
the one that this machine wrote or went on from: of two machines that make the same, one is followed. A machine whose
own folder holds what the index names goes on with its folder, which may be further. What the files mean is not known
here; but logs are taken last, as what goes on may cut them to what the others say, and never make up for lines.
"""

import contextlib
import hashlib
import json
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from infra.errors import Fault
from infra.processes import signals
from infra.store.local import is_log, sha256_of, stamp_of, write_atomically
from infra.store.s3_client import Bucket, NoSuchKey, PreconditionFailed

INDEX = "index.json"
PARTIAL_PATTERN = "*.partial"
"""Names of files and folders that are being written."""
MIN_INTERVAL_SECONDS = 10.0
INTERVAL_FACTOR = 4
"""A snapshot is taken no sooner than so many times as long after the last one as that took."""
SMALL_BYTES = 2**24
"""What is no larger may be altered in place: it is read once, and those bytes are summed and sent."""
MAX_ATTEMPTS = 3

Stamps = Mapping[str, list[int]]


@dataclass(frozen=True)
class SnapshotIndex:
    """What a snapshot holds: sums by file name; the attempt that began it; and the ETag that it has in the bucket."""

    mark: str
    files: Mapping[str, str]
    etag: str
    attempt: str = ""


@dataclass
class Snapshot:
    """The newest snapshot of the work in ``folder``, below ``place`` in the bucket. ``note`` is a file of this machine:
    the marks of the snapshots of which its folder holds everything."""

    bucket: Bucket
    place: str
    folder: Path
    note: Path
    say: Callable[[str], None]
    _attempt: str = ""
    _index: SnapshotIndex | None = None
    _sent: Stamps = field(default_factory=dict)
    _sums: dict[tuple[str, tuple[int, ...]], str] = field(default_factory=dict)
    _sending: threading.Thread | None = None
    _next: float = 0.0
    _over: bool = False
    _said: bool = False
    _writing: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, attempt: str) -> None:
        """Let the folder hold what the snapshot does; one of another than this ``attempt`` is removed, "" takes any.

        Raises NetworkFault.

        One that does not arrive as it was sent is spoken of and left alone: the folder stays what it is.
        """
        self._index = self._read()
        if attempt and self._index and self._index.attempt != attempt:
            self.delete()
        self._attempt = attempt or (self._index.attempt if self._index else "")
        self._over = False
        for _ in range(MAX_ATTEMPTS):
            if not self._index or not self._index.files or self._is_restored(self._index):
                return
            self.say(f"{self._label}: goes on from what another machine had sent to {self.bucket.url(self.place)}")
            beside = self.folder.with_name(f"{self.folder.name}.fetch-{uuid.uuid4().hex[:8]}")
            try:
                self._fetch(self._index, beside)
                shutil.rmtree(self.folder)
                beside.rename(self.folder)
                self._remember(self._index.mark)
                return
            except NoSuchKey:  # replaced by a newer one meanwhile
                self._index = self._read()
            except ValueError as error:
                self.say(f"{self._label}: {error}; that snapshot is not used")
                self._index = replace(self._index, files={})  # and none of its files is taken to be there
                return
            finally:
                shutil.rmtree(beside, ignore_errors=True)

    def upload_in_background(self) -> None:
        """Begin to send what the folder holds by now, if it is time and there is something new; returns at once."""
        if self._over or time.monotonic() < self._next or (self._sending and self._sending.is_alive()):
            return
        self._next = time.monotonic() + MIN_INTERVAL_SECONDS
        there = self._scan()
        if all(is_log(name) for name, stamp in there.items() if self._sent.get(name) != stamp):
            return
        # A daemon: a process that is to end does not wait for it, and half a snapshot is none.
        self._sending = threading.Thread(target=self._send, args=(there,), name="snapshot", daemon=True)
        self._sending.start()

    def delete(self) -> None:
        """Have no snapshot any more: the work is done, or begun anew."""
        with self._writing:
            self._over = True
        if self._index or self._sending:
            self.bucket.delete([f"{self.place}/{INDEX}"])
            self.bucket.delete(f"{self.place}/{name}" for name in self.bucket.list(self.place))
        self._index, self._sent = None, {}
        self.note.unlink(missing_ok=True)

    @property
    def _label(self) -> str:
        return " ".join(self.place.split("/")[:2])

    def _send(self, there: Stamps) -> None:
        begun = time.monotonic()
        try:
            if self._upload_all(there):
                self._sent, self._said = there, False
        except (NoSuchKey, FileNotFoundError):
            pass  # a file that was let go of meanwhile: the next snapshot is without it
        except (Fault, OSError) as error:
            if not self._said:
                self.say(f"{self._label}: not kept in the bucket, tried again later: {error}")
            self._said = True
        except (KeyboardInterrupt, SystemExit):
            return  # this process ends
        finally:
            spent = time.monotonic() - begun
            self._next = time.monotonic() + max(MIN_INTERVAL_SECONDS, INTERVAL_FACTOR * spent)

    def _upload_all(self, there: Stamps) -> bool:
        """Send files, then the index; whether it stands now."""
        known = set(self._index.files.values()) if self._index else set()
        files: dict[str, str] = {}
        for name, stamp in there.items():
            if self._over:
                break
            files[name] = self._upload_file(name, stamp, known)
            known.add(files[name])
        mark = uuid.uuid4().hex
        text = json.dumps({"mark": mark, "attempt": self._attempt, "files": files}, indent=1).encode()
        with self._writing:
            if self._over:  # what came after the end
                self.bucket.delete(f"{self.place}/{name}" for name in files.values())
                return False
            self._remember(mark)
            with contextlib.suppress(PreconditionFailed, NoSuchKey):
                self.bucket.put_if_match(f"{self.place}/{INDEX}", text, self._index.etag if self._index else "")
            # Looked at in any case: a write that was repeated for want of an answer is told Taken of its own first try.
            now = self._read()
            if now is None or now.mark != mark:
                self._over = True
                self.say(f"{self._label}: another machine makes the same and is followed; this one's try stays here")
                return False
        self._index = now
        self._remember()
        stale = self.bucket.list(self.place).keys() - {INDEX, *files.values()}
        self.bucket.delete(f"{self.place}/{name}" for name in stale)
        return True

    def _upload_file(self, name: str, stamp: list[int], known: set[str]) -> str:
        path = self.folder / name
        if stamp[0] <= SMALL_BYTES:
            content = path.read_bytes()
            small = hashlib.sha256(content).hexdigest()
            if small not in known:
                signals.check()
                self.bucket.put(f"{self.place}/{small}", content)
            return small
        same = (name, tuple(stamp))
        if same not in self._sums:
            self._sums[same] = sha256_of(path)
        if self._sums[same] not in known:
            self.bucket.upload(path, f"{self.place}/{self._sums[same]}", {})
        return self._sums[same]

    def _scan(self) -> Stamps:
        """The whole files, logs last."""
        found: dict[str, list[int]] = {}
        for path in sorted(self.folder.rglob("*"), key=lambda path: (is_log(path.name), path)):
            name = path.relative_to(self.folder)
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and not any(Path(part).match(PARTIAL_PATTERN) for part in name.parts):
                    found[name.as_posix()] = stamp_of(path)
        return found

    def _is_restored(self, index: SnapshotIndex) -> bool:
        return any(self.folder.iterdir()) and index.mark in self._marks()

    def _read(self) -> SnapshotIndex | None:
        """The index that stands, None where there is none; one that cannot be read is one of no files."""
        listed = self.bucket.list(self.place).get(INDEX)
        if listed is None:
            return None
        try:
            told = json.loads(self.bucket.read(f"{self.place}/{INDEX}"))
            return SnapshotIndex(told["mark"], dict(told["files"]), listed.etag, told.get("attempt", ""))
        except (NoSuchKey, ValueError, TypeError, KeyError):
            return SnapshotIndex("", {}, listed.etag)

    def _fetch(self, index: SnapshotIndex, beside: Path) -> None:
        """Raises NoSuchKey, or ValueError for bytes that are not those that were sent."""
        for name, expected in index.files.items():
            path = beside / name
            if ".." in path.parts or beside not in path.parents:
                raise ValueError(f"{self.bucket.url(f'{self.place}/{INDEX}')} names a file {name!r} outside")
            path.parent.mkdir(parents=True, exist_ok=True)
            if self.bucket.download(f"{self.place}/{expected}", path) != expected:
                raise ValueError(f"{self.bucket.url(f'{self.place}/{expected}')} is not what its sum says")

    def _marks(self) -> list[str]:
        try:
            return [str(mark) for mark in json.loads(self.note.read_text())]
        except (OSError, ValueError, TypeError):
            return []

    def _remember(self, mark: str = "") -> None:
        """Note the snapshot that stands, and the one that is about to: only the bucket knows whether it arrived."""
        marks = [self._index.mark] if self._index else []
        self.note.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.note, json.dumps([*marks, *([mark] if mark else [])]))
