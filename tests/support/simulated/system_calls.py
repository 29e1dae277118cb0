"""Leads Python's file functions to a simulated machine, for paths below its root and for its descriptors."""

import fcntl
import io
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from simulated.disk import Node, Status
from simulated.machine import Machine

FIRST_DESCRIPTOR = 10**6


class Entry:
    """What ``os.scandir`` gives."""

    __slots__ = ("_node", "name", "path")

    def __init__(self, folder: str, name: str, node: Node) -> None:
        self.name, self.path, self._node = name, f"{folder}/{name}", node

    def __fspath__(self) -> str:
        return self.path

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._node.entries is not None

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._node.entries is None

    def is_symlink(self) -> bool:
        return False

    def stat(self, *, follow_symlinks: bool = True) -> Status:
        return Status(self._node)


class Listing(list[Entry]):
    """Entries of a folder; a context manager and an iterator, like ``os.scandir``'s."""

    def __enter__(self) -> "Listing":
        return self

    def __exit__(self, *error: object) -> None: ...

    def __next__(self) -> Entry:
        if not self:
            raise StopIteration
        return self.pop(0)

    def close(self) -> None: ...


class Writer:
    """A file open for writing. Each ``write`` is a system call."""

    def __init__(self, machine: Machine, path: str, mode: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if "w" in mode else 0) | (os.O_EXCL if "x" in mode else 0)
        machine.may_fail(path)
        self._machine, self._path = machine, path
        node = machine.disk.open(path, flags)
        self._descriptor, self._node = machine.opened(node), node
        self._at = len(node.data) if "a" in mode else 0

    def write(self, data: str | bytes) -> int:
        content = data.encode() if isinstance(data, str) else bytes(data)
        self._machine.step(f"write {self._path}")
        self._machine.may_fail(self._path)
        self._machine.disk.write(self._node, self._at, content)
        self._at += len(content)
        return len(data)

    def flush(self) -> None: ...

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        self._machine.close(self._descriptor)

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@contextmanager
def simulated_system(machine: Machine, random: Random) -> Iterator[None]:
    """Lead the file functions to ``machine`` for the block, the clock too; ids follow from ``random``."""
    prefix, disk = machine.disk.root, machine.disk

    def ours(path: Any) -> str:
        """The path as text if it is on the machine, else empty."""
        text = path if isinstance(path, str) else "" if isinstance(path, int) else os.fspath(path)
        return text if text.startswith(prefix) else ""

    def on_path(name: str, act: Callable[[str], Any], *, writes: bool = False) -> Any:
        real = getattr(os, name)

        def call(path: Any = ".", *arguments: Any, **options: Any) -> Any:
            if not (text := ours(path)):
                return real(path, *arguments, **options)
            machine.step(f"{name} {text}")
            if writes:
                machine.may_fail(text)
            return act(text)

        return patch.object(os, name, call)

    def on_descriptor(module: Any, name: str, act: Callable[..., Any], *, writes: bool = False) -> Any:
        real = getattr(module, name)

        def call(descriptor: int, *arguments: Any) -> Any:
            if not isinstance(descriptor, int) or descriptor < FIRST_DESCRIPTOR:
                return real(descriptor, *arguments)
            machine.step(name)
            if writes:
                machine.may_fail(name)
            return act(descriptor, *arguments)

        return patch.object(module, name, call)

    def scandir(path: str) -> Listing:
        node = disk.find(path)
        if node.entries is None:
            raise NotADirectoryError(path)
        return Listing(Entry(path, name, child) for name, child in node.entries.items())

    def rename(name: str) -> Any:
        real = getattr(os, name)

        def call(source: Any, target: Any) -> None:
            if not (text := ours(source)):
                return real(source, target)
            machine.step(f"{name} {text} to {target}")
            machine.may_fail(text)
            return disk.rename(text, str(target))

        return patch.object(os, name, call)

    real_open, real_os_open = io.open, os.open

    def open_file(path: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if not (text := ours(path)):
            return real_open(path, mode, *arguments, **options)
        machine.step(f"open {text}")
        if mode.strip("bt") != "r":
            return Writer(machine, text, mode)
        node = disk.find(text)
        if node.entries is not None:
            raise IsADirectoryError(text)
        content = bytes(node.data)
        return io.BytesIO(content) if "b" in mode else io.TextIOWrapper(io.BytesIO(content), encoding="utf-8")

    def open_descriptor(path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        if not (text := ours(path)):
            return real_os_open(path, flags, mode, **options)
        machine.step(f"open {text}")
        return machine.opened(disk.open(text, flags))

    def truncate(descriptor: int, size: int) -> None:
        node = machine.file(descriptor).node
        disk.write(node, 0, bytes(node.data[:size]), truncate=True)

    def pwrite(descriptor: int, data: bytes, at: int) -> int:
        disk.write(machine.file(descriptor).node, at, data)
        return len(data)

    ids = SimpleNamespace
    status = lambda path: Status(disk.find(path))  # noqa: E731
    patches = [
        on_path("stat", status),
        on_path("lstat", status),
        on_path("scandir", scandir),
        on_path("listdir", lambda path: [entry.name for entry in scandir(path)]),
        on_path("mkdir", disk.mkdir, writes=True),
        on_path("rmdir", lambda path: disk.remove(path, folder=True)),
        on_path("unlink", lambda path: disk.remove(path, folder=False)),
        rename("rename"),
        rename("replace"),
        on_descriptor(os, "fsync", lambda descriptor: disk.sync(machine.file(descriptor).node), writes=True),
        on_descriptor(os, "close", machine.close),
        on_descriptor(os, "ftruncate", truncate),
        on_descriptor(os, "pwrite", pwrite),
        on_descriptor(os, "pread", lambda descriptor, size, at: bytes(machine.file(descriptor).node.data[at:][:size])),
        # A shared lock only pins a copy against eviction, and the simulated cache never overflows.
        on_descriptor(fcntl, "flock", lambda descriptor, how: how & fcntl.LOCK_EX and machine.try_lock(descriptor)),
        on_path("utime", lambda path, *_: disk.touch(path)),
        patch.object(os, "open", open_descriptor),
        patch.object(io, "open", open_file),
        patch.object(shutil, "_use_fd_functions", False),
        patch.object(time, "sleep", machine.sleep),
        patch.object(time, "monotonic", lambda: machine.now),
        patch.object(time, "time", machine.time),
        patch.object(uuid, "uuid4", lambda: ids(hex=f"{random.getrandbits(128):032x}")),
    ]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in reversed(patches):
            each.stop()
