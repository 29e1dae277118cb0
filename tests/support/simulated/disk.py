"""A disk in memory that knows which bytes and names are on it for good, and which a power loss may take.

As POSIX allows: ``fsync`` of a file keeps its bytes, not its name; ``fsync`` of a folder keeps the names in it. A
rename is one change, of two folders perhaps. Without ``fsync`` bytes and names may be lost in any combination.
"""

import errno
import os
import stat
from random import Random

FIRST_INODE = 100


class Node:
    """A file or a folder."""

    __slots__ = ("data", "durable", "entries", "inode", "mtime_ns", "synced")

    def __init__(self, inode: int, mtime_ns: int, *, folder: bool) -> None:
        self.inode, self.mtime_ns = inode, mtime_ns
        self.entries: dict[str, Node] | None = {} if folder else None
        self.durable: dict[str, Node] = {}
        """The names that survive a power loss for certain."""
        self.data = bytearray()
        self.synced = b""
        """The bytes that survive a power loss for certain."""


class Status:
    """What ``os.stat`` gives, as far as it is used."""

    __slots__ = ("st_ino", "st_mode", "st_mtime", "st_mtime_ns", "st_size")

    def __init__(self, node: Node) -> None:
        self.st_mode = stat.S_IFREG | 0o644 if node.entries is None else stat.S_IFDIR | 0o755
        self.st_ino, self.st_mtime_ns, self.st_mtime = node.inode, node.mtime_ns, node.mtime_ns / 1e9
        self.st_size = len(node.data)


Change = list[tuple[Node, str, Node | None]]
"""One atomic change of names: folder, name and what is there afterwards."""


def failure(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


class Disk:
    """Files below ``root``, which exists and is durable."""

    def __init__(self, root: str) -> None:
        self.root, self._skip = root, len(root.split("/"))
        self._inodes = FIRST_INODE
        self.now_ns = 10**18
        """The clock of the machine, since 1970. It may be set."""
        self.top = self._new(folder=True)
        self.pending: list[Change] = []
        """Changes of names, in their order, that a power loss may take."""
        self.dirty: dict[int, Node] = {}
        """Files with bytes that a power loss may take."""

    def _new(self, *, folder: bool) -> Node:
        self._inodes += 1
        return Node(self._inodes, self.now_ns, folder=folder)

    def find(self, path: str) -> Node:
        node = self.top
        for name in path.split("/")[self._skip :]:
            if node.entries is None:
                raise failure(errno.ENOTDIR, path)
            try:
                node = node.entries[name]
            except KeyError:
                raise failure(errno.ENOENT, path) from None
        return node

    def _place(self, path: str) -> tuple[Node, str]:
        parent, _, name = path.rpartition("/")
        folder = self.find(parent)
        if folder.entries is None:
            raise failure(errno.ENOTDIR, path)
        return folder, name

    def _change(self, change: Change) -> None:
        self.now_ns += 1_000
        for folder, name, node in change:
            assert folder.entries is not None
            if node is None:
                folder.entries.pop(name, None)
            else:
                folder.entries[name] = node
            folder.mtime_ns = self.now_ns
        self.pending.append(change)

    def open(self, path: str, flags: int) -> Node:
        try:
            node = self.find(path)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            folder, name = self._place(path)
            node = self._new(folder=False)
            self._change([(folder, name, node)])
            return node
        if flags & os.O_EXCL:
            raise failure(errno.EEXIST, path)
        if node.entries is not None and flags & (os.O_WRONLY | os.O_RDWR):
            raise failure(errno.EISDIR, path)
        if flags & os.O_TRUNC:
            self.write(node, 0, b"", truncate=True)
        return node

    def write(self, node: Node, at: int, data: bytes, *, truncate: bool = False) -> None:
        """Put ``data`` at an offset; with ``truncate`` nothing follows it."""
        end = len(node.data) if truncate else at + len(data)
        node.data[at:end] = data
        self.now_ns += 1_000
        node.mtime_ns = self.now_ns
        self.dirty[node.inode] = node

    def touch(self, path: str) -> None:
        self.now_ns += 1_000
        self.find(path).mtime_ns = self.now_ns

    def mkdir(self, path: str) -> None:
        folder, name = self._place(path)
        if name in (folder.entries or ()):
            raise failure(errno.EEXIST, path)
        self._change([(folder, name, self._new(folder=True))])

    def remove(self, path: str, *, folder: bool) -> None:
        parent, name = self._place(path)
        node = self.find(path)
        if (node.entries is not None) != folder:
            raise failure(errno.ENOTDIR if folder else errno.EISDIR, path)
        if node.entries:
            raise failure(errno.ENOTEMPTY, path)
        self._change([(parent, name, None)])

    def rename(self, source: str, target: str) -> None:
        (old, old_name), (new, new_name), node = self._place(source), self._place(target), self.find(source)
        assert new.entries is not None
        over = new.entries.get(new_name)
        if over is node:
            return
        if over is not None and (over.entries is not None) != (node.entries is not None):
            raise failure(errno.ENOTDIR if over.entries is None else errno.EISDIR, target)
        if over is not None and over.entries:
            raise failure(errno.ENOTEMPTY, target)
        self._change([(old, old_name, None), (new, new_name, node)])

    def sync(self, node: Node) -> None:
        """What ``os.fsync`` does."""
        if node.entries is None:
            node.synced = bytes(node.data)
            self.dirty.pop(node.inode, None)
            return
        # Later changes of a name rest on earlier ones, also on those of another folder.
        names: set[tuple[int, str]] = set()
        chosen: list[Change] = []
        for change in reversed(self.pending):
            if any(folder is node or (folder.inode, name) in names for folder, name, _ in change):
                names.update((folder.inode, name) for folder, name, _ in change)
                chosen.append(change)
        for change in reversed(chosen):
            _keep(change)
        kept = set(map(id, chosen))
        self.pending = [change for change in self.pending if id(change) not in kept]

    def lose_power(self, choose: Random) -> str:
        """Keep what was synced and, as ``choose`` has it, some of the rest; gives what was kept in words."""
        mode = choose.choice(("nothing else", "all names but no bytes", "names up to some time", "any", "any"))
        changes = self.pending
        if mode == "nothing else":
            changes = []
        elif mode == "names up to some time":
            changes = changes[: choose.randint(0, len(changes))]
        elif mode == "any":
            changes = [change for change in changes if choose.random() < 0.5]
        for change in changes:
            _keep(change)
        for node in self.dirty.values():
            kept = node.synced
            if mode in ("names up to some time", "any") and choose.random() < 0.7:
                size = choose.choice((len(node.data), choose.randint(0, len(node.data))))
                kept = bytes(node.data[:size]) if choose.random() < 0.7 else bytes(size)
            node.data, node.synced = bytearray(kept), kept
        self.pending, self.dirty = [], {}
        self._restore(self.top)
        return mode

    def _restore(self, folder: Node) -> None:
        folder.entries = dict(folder.durable)
        for node in folder.entries.values():
            if node.entries is not None:
                self._restore(node)


def _keep(change: Change) -> None:
    for folder, name, node in change:
        if node is None:
            folder.durable.pop(name, None)
        else:
            folder.durable[name] = node
