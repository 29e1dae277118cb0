"""Copies an unfinished folder to a bucket, so that another machine can resume from it if this one is lost.

    <stage>/<key>/resume-<inputs>/<writer>/index.json   names and checksums of the files, and the attempt
    <stage>/<key>/resume-<inputs>/<writer>/<sha256>     a file; the index is written after all files

Such a copy, a snapshot, is taken while the job runs; links beside the folder hold its files until all are sent. Each
machine writes below its own name, so machines that make the same key never replace each other's files. A machine that
resumes takes the complete snapshot that is furthest. The machine that seals the artifact removes all snapshots.
"""

import contextlib
import hashlib
import json
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from infra.errors import BadData, Fault
from infra.guards.path_names import path_below
from infra.processes import signals
from infra.processes.identity import machine_identity
from infra.store.files import files_below, link_or_copy, sha256_of, stamp_of, sync, sync_tree
from infra.store.manifest import is_log
from infra.store.s3_client import Bucket, NoSuchKey

INDEX = "index.json"
MIN_INTERVAL_SECONDS = 10.0
INTERVAL_FACTOR = 4
"""The pause after a snapshot is at least this many times as long as the snapshot took."""
SMALL_BYTES = 2**24
"""A file up to this size, or a log, may change in place, so it is read once: the same bytes are hashed and sent."""

Stamps = Mapping[str, list[int]]


@dataclass(frozen=True)
class SnapshotIndex:
    """A snapshot: its place in the bucket, the checksums of its files by name, and the attempt that began it."""

    place: str
    files: Mapping[str, str]
    attempt: str = ""


def progress(names: Iterable[str]) -> int:
    """How far a job is by its files: the largest number in a name, as in ``00041.parquet``; 0 without one."""
    return max((int(number) for name in names for number in re.findall(r"\d+", name)), default=0)


def snapshots(bucket: Bucket, prefix: str) -> Iterator[SnapshotIndex]:
    """Yield each machine's index below ``prefix`` if it is readable, the newest first. Raises NetworkFault."""
    listed = bucket.list(prefix)
    names = [name for name in listed if name.endswith(f"/{INDEX}")]
    for name in sorted(names, key=lambda name: listed[name].modified, reverse=True):
        place = f"{prefix}/{name.rpartition('/')[0]}"
        with contextlib.suppress(NoSuchKey, ValueError, TypeError, KeyError):
            form = json.loads(bucket.read(f"{place}/{INDEX}"))
            yield SnapshotIndex(place, dict(form["files"]), form.get("attempt", ""))


@dataclass
class Snapshot:
    """This machine's snapshot of ``folder``, in the bucket below ``prefix`` and this machine's name."""

    bucket: Bucket
    prefix: str
    folder: Path
    say: Callable[[str], None]
    _attempt: str = ""
    _uploaded: set[str] = field(default_factory=set)
    """Checksums of the files that this object sent. Files that an earlier process sent may be altered."""
    _sent: Stamps = field(default_factory=dict)
    _sums: dict[tuple[str, tuple[int, ...]], str] = field(default_factory=dict)
    _thread: threading.Thread | None = None
    _next: float = 0.0
    _stopped: bool = False
    _warned: bool = False
    _write_lock: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def _place(self) -> str:
        """Where this machine writes. Two caches on one machine count as two writers."""
        writer = hashlib.sha256(f"{machine_identity()} {self.folder}".encode()).hexdigest()[:12]
        return f"{self.prefix}/{writer}"

    @property
    def _label(self) -> str:
        """Stage and key, for messages."""
        return " ".join(self.prefix.split("/")[:2])

    def begin(self, attempt: str) -> None:
        """Fill the folder with the complete snapshot of ``attempt`` ("": of any attempt) that is furthest.

        The folder stays if no snapshot of another machine is further; this machine's own is at most as recent. A
        snapshot with altered or missing bytes is reported and not used. Raises NetworkFault.
        """
        self._attempt = attempt
        here = progress(self._scan())
        is_empty = not any(self.folder.iterdir())
        # Of two that are equally far, the newer is first.
        for index in sorted(snapshots(self.bucket, self.prefix), key=lambda index: progress(index.files), reverse=True):
            if attempt and index.attempt != attempt:
                continue
            is_own = index.place == self._place and not is_empty
            is_further = is_empty or progress(index.files) > here
            if is_own or (is_further and self._fetch(index)):
                self._attempt = index.attempt
                return

    def _fetch(self, index: SnapshotIndex) -> bool:
        """Replace the folder by a snapshot; return whether the snapshot was complete."""
        self.say(f"{self._label}: resumes from what another machine sent to {self.bucket.url(index.place)}")
        partial = self.folder.with_name(f"{self.folder.name}.fetch-{uuid.uuid4().hex[:8]}")
        try:
            for name, expected in index.files.items():
                path = path_below(partial, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                if self.bucket.download(f"{index.place}/{expected}", path) != expected:
                    raise ValueError(f"{self.bucket.url(f'{index.place}/{expected}')} does not match its checksum")
            sync_tree(partial)
            shutil.rmtree(self.folder)
            partial.rename(self.folder)
            sync(self.folder.parent)
            return True
        except (NoSuchKey, BadData, ValueError) as error:
            self.say(f"{self._label}: that snapshot is incomplete and is not used ({error})")
            return False
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def upload_in_background(self) -> None:
        """Start to send the folder's files if the pause is over and more than logs changed; returns at once."""
        if self._stopped or time.monotonic() < self._next or (self._thread and self._thread.is_alive()):
            return
        self._next = time.monotonic() + MIN_INTERVAL_SECONDS
        stamps = self._scan()
        if all(is_log(name) for name, stamp in stamps.items() if self._sent.get(name) != stamp):
            return
        # A daemon: the process may end at any time, because a snapshot without an index is never used.
        self._thread = threading.Thread(target=self._send, args=(stamps,), name="snapshot", daemon=True)
        self._thread.start()

    def delete(self) -> None:
        """Delete the snapshots of all machines after the work is done."""
        with self._write_lock:
            self._stopped = True
        names = [f"{self.prefix}/{name}" for name in self.bucket.list(self.prefix)]
        self.bucket.delete(name for name in names if name.endswith(f"/{INDEX}"))
        self.bucket.delete(names)

    def _send(self, stamps: Stamps) -> None:
        started = time.monotonic()
        held = self.folder.with_name(f"{self.folder.name}.send")
        try:
            self._hold(stamps, held)
            if self._upload_all(stamps, held):
                self._sent = stamps
                self._warned = False
        except (NoSuchKey, FileNotFoundError):
            pass  # the job removed a file before it was held: the next snapshot will lack it
        except (Fault, OSError) as error:
            if not self._warned:
                self.say(f"{self._label}: no snapshot in the bucket, trying again later: {error}")
            self._warned = True
        except (KeyboardInterrupt, SystemExit):
            return  # this process ends
        finally:
            shutil.rmtree(held, ignore_errors=True)
            spent = time.monotonic() - started
            self._next = time.monotonic() + max(MIN_INTERVAL_SECONDS, INTERVAL_FACTOR * spent)

    def _hold(self, names: Iterable[str], held: Path) -> None:
        """Link the files into ``held``. The job removes old checkpoints, perhaps faster than they can be sent."""
        shutil.rmtree(held, ignore_errors=True)  # of a process that was killed
        for name in names:
            (held / name).parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(self.folder / name, held / name)

    def _upload_all(self, stamps: Stamps, held: Path) -> bool:
        """Send the files, then the index; return whether the index is in the bucket now."""
        # List each time: another machine that seals the artifact removes the files.
        listed = self.bucket.list(self._place).keys()
        files: dict[str, str] = {}
        known = self._uploaded & listed
        for name, stamp in stamps.items():
            if self._stopped:
                break
            files[name] = self._upload_file(held, name, stamp, known)
            known.add(files[name])
            self._uploaded.add(files[name])
        content = {"attempt": self._attempt, "files": files}
        with self._write_lock:
            if self._stopped:  # delete() ran meanwhile
                self.bucket.delete(f"{self._place}/{name}" for name in files.values())
                return False
            self._sync(files, held)
            self.bucket.put(f"{self._place}/{INDEX}", json.dumps(content, indent=1).encode())
        stale = listed - {INDEX, *files.values()}
        self.bucket.delete(f"{self._place}/{name}" for name in stale)
        return True

    def _sync(self, names: Iterable[str], held: Path) -> None:
        """Wait until the files are on the disk, so that even after a crash the folder is as recent as its snapshot."""
        for name in names:
            sync(held / name)
        for folder in sorted({parent for name in names for parent in Path(name).parents}):
            with contextlib.suppress(FileNotFoundError):
                sync(self.folder / folder)

    def _upload_file(self, held: Path, name: str, stamp: list[int], known: set[str]) -> str:
        """Send a file unless its checksum is ``known`` to be in the bucket; return the checksum."""
        path = held / name
        if stamp[0] <= SMALL_BYTES or is_log(name):
            content = path.read_bytes()
            sha256 = hashlib.sha256(content).hexdigest()
            if sha256 not in known:
                signals.check()
                self.bucket.put(f"{self._place}/{sha256}", content)
            return sha256
        unchanged = (name, tuple(stamp))
        if unchanged not in self._sums:
            self._sums[unchanged] = sha256_of(path)
        if self._sums[unchanged] not in known:
            self.bucket.upload(path, f"{self._place}/{self._sums[unchanged]}")
        return self._sums[unchanged]

    def _scan(self) -> Stamps:
        """Return the stamps of the finished files, logs last: a resumed job truncates logs to its checkpoint."""
        found: dict[str, list[int]] = {}
        for path in sorted(files_below(self.folder), key=lambda path: (is_log(path.name), path)):
            name = path.relative_to(self.folder)
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and ".partial/" not in f"{name}/":
                    found[name.as_posix()] = stamp_of(path)
        return found
