"""Snapshots of an unfinished folder in a bucket, from which another machine resumes where this one is lost.

    <stage>/<key>/resume-<inputs>/index.json   names and sums of the files, the attempt, a random mark; written last
    <stage>/<key>/resume-<inputs>/<sha256>     a file

Snapshots are taken while the job runs. The index is replaced only if it is still the one that this machine wrote or
resumed from, so of two machines that make the same key one is followed.
"""

import contextlib
import hashlib
import json
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from infra.errors import Fault
from infra.processes import signals
from infra.store.files import sha256_of, stamp_of, sync, sync_tree, write_atomically
from infra.store.manifest import is_log
from infra.store.s3_client import Bucket, NoSuchKey, PreconditionFailed
from infra.store.signatures import NO_KEYS, Keys, Untrusted, sign, verified_statement
from infra.store.statement import checkpoint_statement

INDEX = "index.json"
PARTIAL_PATTERN = "*.partial"
"""Names of files and folders that are being written."""
MIN_INTERVAL_SECONDS = 10.0
INTERVAL_FACTOR = 4
"""The pause after a snapshot is at least this many times as long as the snapshot took."""
SMALL_BYTES = 2**24
"""A file up to this size may change in place: it is read once, and those bytes are hashed and sent."""
MAX_ATTEMPTS = 3

Stamps = Mapping[str, list[int]]


@dataclass(frozen=True)
class SnapshotIndex:
    """The content of a snapshot: sums by file name, the attempt that began it, and the index's ETag in the bucket."""

    mark: str
    files: Mapping[str, str]
    etag: str
    attempt: str = ""


@dataclass
class Snapshot:
    """The newest snapshot of ``folder``, below ``prefix`` in the bucket.

    The local file ``note`` holds the marks of the snapshots whose content the folder includes: a folder with the
    index's mark may be further than the snapshot and is kept.
    """

    bucket: Bucket
    prefix: str
    folder: Path
    note: Path
    say: Callable[[str], None]
    keys: Keys = NO_KEYS
    """Sign what is sent; a snapshot that none of the trusted keys signed is not used."""
    _attempt: str = ""
    _index: SnapshotIndex | None = None
    _sent: Stamps = field(default_factory=dict)
    _sums: dict[tuple[str, tuple[int, ...]], str] = field(default_factory=dict)
    _thread: threading.Thread | None = None
    _next: float = 0.0
    _stopped: bool = False
    _warned: bool = False
    _write_lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, attempt: str) -> None:
        """Bring the folder to the snapshot's content; delete a snapshot of another ``attempt`` ("" accepts any).

        A snapshot with altered bytes is reported and not used. Raises NetworkFault.
        """
        self._index = self._read_index()
        if attempt and self._index and self._index.attempt != attempt:
            self.delete()
        self._attempt = attempt or (self._index.attempt if self._index else "")
        self._stopped = False
        for _ in range(MAX_ATTEMPTS):
            if not self._index or not self._index.files or self._is_included(self._index):
                return
            self.say(f"{self._label}: resumes from what another machine sent to {self.bucket.url(self.prefix)}")
            partial = self.folder.with_name(f"{self.folder.name}.fetch-{uuid.uuid4().hex[:8]}")
            try:
                self._download(self._index, partial)
                sync_tree(partial)
                shutil.rmtree(self.folder)
                partial.rename(self.folder)
                sync(self.folder.parent)  # before the note, which says that the folder has it all
                self._write_note(self._index.mark)
                return
            except NoSuchKey:  # a newer snapshot replaced it meanwhile
                self._index = self._read_index()
            except ValueError as error:
                self.say(f"{self._label}: {error}; that snapshot is not used")
                self._index = replace(self._index, files={})  # so that all its files are sent again
                return
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        if self._index:  # files are missing: send all of them again
            self.say(f"{self._label}: the snapshot at {self.bucket.url(self.prefix)} lacks files and is not used")
            self._index = replace(self._index, files={})

    def read(self, name: str) -> bytes:
        """A file of the snapshot in the bucket; b"" where there is none, or an altered one. Raises NetworkFault."""
        index = self._read_index()
        expected = index.files.get(name, "") if index else ""
        content = b""
        with contextlib.suppress(NoSuchKey):  # a newer snapshot replaced it meanwhile
            content = self.bucket.read(f"{self.prefix}/{expected}") if expected else b""
        return content if hashlib.sha256(content).hexdigest() == expected else b""

    def upload_in_background(self) -> None:
        """Start to send the folder's files if it is time and more than logs changed; returns at once."""
        if self._stopped or time.monotonic() < self._next or (self._thread and self._thread.is_alive()):
            return
        self._next = time.monotonic() + MIN_INTERVAL_SECONDS
        stamps = self._scan()
        if all(is_log(name) for name, stamp in stamps.items() if self._sent.get(name) != stamp):
            return
        # A daemon: the process may end at any time, since half a snapshot is never seen.
        self._thread = threading.Thread(target=self._send, args=(stamps,), name="snapshot", daemon=True)
        self._thread.start()

    def delete(self) -> None:
        """Delete the snapshot, because the work is done or starts again."""
        with self._write_lock:
            self._stopped = True
        if self._index or self._thread:
            self.bucket.delete([f"{self.prefix}/{INDEX}"])
            self.bucket.delete(f"{self.prefix}/{name}" for name in self.bucket.list(self.prefix))
        self._index, self._sent = None, {}
        self.note.unlink(missing_ok=True)

    @property
    def _label(self) -> str:
        return " ".join(self.prefix.split("/")[:2])

    def _send(self, stamps: Stamps) -> None:
        started = time.monotonic()
        try:
            if self._upload_all(stamps):
                self._sent, self._warned = stamps, False
        except (NoSuchKey, FileNotFoundError):
            pass  # the job removed a file meanwhile: the next snapshot is without it
        except (Fault, OSError) as error:
            if not self._warned:
                self.say(f"{self._label}: no snapshot in the bucket, trying again later: {error}")
            self._warned = True
        except (KeyboardInterrupt, SystemExit):
            return  # this process ends
        finally:
            spent = time.monotonic() - started
            self._next = time.monotonic() + max(MIN_INTERVAL_SECONDS, INTERVAL_FACTOR * spent)

    def _upload_all(self, stamps: Stamps) -> bool:
        """Send files, then the index; whether this machine's index is in the bucket now."""
        known = set(self._index.files.values()) if self._index else set()
        files: dict[str, str] = {}
        for name, stamp in stamps.items():
            if self._stopped:
                break
            files[name] = self._upload_file(name, stamp, known)
            known.add(files[name])
        mark = uuid.uuid4().hex
        content = {"mark": mark, "attempt": self._attempt, "files": files, **self._signature(mark, files)}
        text = json.dumps(content, indent=1).encode()
        with self._write_lock:
            if self._stopped:  # delete() ran meanwhile
                self.bucket.delete(f"{self.prefix}/{name}" for name in files.values())
                return False
            self._sync(files)
            self._write_note(mark)
            with contextlib.suppress(PreconditionFailed, NoSuchKey):
                self.bucket.put_if_match(f"{self.prefix}/{INDEX}", text, self._index.etag if self._index else "")
            # Read in any case: a request repeated for want of an answer fails on its own first try.
            written = self._read_index()
            if written is None or written.mark != mark:
                self._stopped = True
                self.say(f"{self._label}: another machine makes the same and is followed; this one sends nothing more")
                return False
        self._index = written
        self._write_note()
        stale = self.bucket.list(self.prefix).keys() - {INDEX, *files.values()}
        self.bucket.delete(f"{self.prefix}/{name}" for name in stale)
        return True

    def _sync(self, names: Iterable[str]) -> None:
        """Wait until the files are on the disk: the note says that this folder has them, also after a loss of power."""
        paths = [self.folder / name for name in names]
        folders = {parent for path in paths for parent in path.parents if parent.is_relative_to(self.folder)}
        for path in (*paths, *folders):
            sync(path)

    def _upload_file(self, name: str, stamp: list[int], known: set[str]) -> str:
        """Send a file unless its sum is ``known`` to be in the bucket; gives the sum."""
        path = self.folder / name
        if stamp[0] <= SMALL_BYTES:
            content = path.read_bytes()
            sha256 = hashlib.sha256(content).hexdigest()
            if sha256 not in known:
                signals.check()
                self.bucket.put(f"{self.prefix}/{sha256}", content)
            return sha256
        unchanged = (name, tuple(stamp))
        if unchanged not in self._sums:
            self._sums[unchanged] = sha256_of(path)
        if self._sums[unchanged] not in known:
            self.bucket.upload(path, f"{self.prefix}/{self._sums[unchanged]}")
        return self._sums[unchanged]

    def _scan(self) -> Stamps:
        """Stamps of the finished files. Logs come last: a resumed job truncates them to its checkpoint."""
        found: dict[str, list[int]] = {}
        for path in sorted(self.folder.rglob("*"), key=lambda path: (is_log(path.name), path)):
            name = path.relative_to(self.folder)
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and not any(Path(part).match(PARTIAL_PATTERN) for part in name.parts):
                    found[name.as_posix()] = stamp_of(path)
        return found

    def _is_included(self, index: SnapshotIndex) -> bool:
        return any(self.folder.iterdir()) and index.mark in self._read_note()

    def _read_index(self) -> SnapshotIndex | None:
        """The index in the bucket, None where there is none; an unreadable index has no files."""
        listed = self.bucket.list(self.prefix).get(INDEX)
        if listed is None:
            return None
        try:
            index = json.loads(self.bucket.read(f"{self.prefix}/{INDEX}"))
            found = SnapshotIndex(index["mark"], dict(index["files"]), listed.etag, index.get("attempt", ""))
            self._check_signature(found, index.get("signature"))
            return found
        except (NoSuchKey, ValueError, TypeError, KeyError):
            return SnapshotIndex("", {}, listed.etag)
        except Untrusted as untrusted:
            self.say(f"{self._label}: the snapshot at {self.bucket.url(self.prefix)} is not used: {untrusted}")
            return SnapshotIndex("", {}, listed.etag)

    def _signature(self, mark: str, files: Mapping[str, str]) -> dict[str, object]:
        if self.keys.signer is None:
            return {}
        return {"signature": sign(checkpoint_statement(self.prefix, mark, self._attempt, files), self.keys.signer)}

    def _check_signature(self, index: SnapshotIndex, signature: object) -> None:
        """Raises Untrusted."""
        if self.keys.trusted is None:
            return
        expected = checkpoint_statement(self.prefix, index.mark, index.attempt, index.files)
        if verified_statement(signature, self.keys.trusted) != expected:
            raise Untrusted("signed for something else")

    def _download(self, index: SnapshotIndex, folder: Path) -> None:
        """Raises NoSuchKey, or ValueError for a name outside the folder or bytes that do not match their sum."""
        for name, expected in index.files.items():
            path = folder / name
            if ".." in path.parts or folder not in path.parents:
                raise ValueError(f"{self.bucket.url(f'{self.prefix}/{INDEX}')} names a file {name!r} outside")
            path.parent.mkdir(parents=True, exist_ok=True)
            if self.bucket.download(f"{self.prefix}/{expected}", path) != expected:
                raise ValueError(f"{self.bucket.url(f'{self.prefix}/{expected}')} does not match its sum")

    def _read_note(self) -> list[str]:
        try:
            return [str(mark) for mark in json.loads(self.note.read_text())]
        except (OSError, ValueError, TypeError):
            return []

    def _write_note(self, mark: str = "") -> None:
        """Note the current snapshot's mark and that of the next: only the bucket knows whether the next arrives."""
        marks = [self._index.mark] if self._index else []
        write_atomically(self.note, json.dumps([*marks, *([mark] if mark else [])]))
