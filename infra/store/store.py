"""What every store of artifacts can do: a folder (``infra.store.local``) or a bucket with a cache (``infra.store.s3``).

An artifact is a sealed, immutable folder, found by its stage and its key. A stage writes into a folder from ``begin``;
``seal`` makes it an artifact, whole or not at all. What makes the same artifact on this machine holds ``lock_file``.
"""

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.guards.address_secrets import public_facts
from infra.processes.locks import is_locked, lock_holder
from infra.store.manifest import Manifest


@dataclass(frozen=True)
class Artifact:
    """A sealed folder: ``path()`` is where its files are, ``facts`` what its stage returned."""

    stage: str
    key: str
    folder: Path
    content: str = ""
    """Digest over the sorted paths and sums of its files, without logs; empty until it is made."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    home: "Store | None" = field(default=None, repr=False, compare=False)
    """Its store; None for a folder that no store made."""

    def path(self) -> Path:
        """The local folder with the files, checked byte by byte the first time that this process asks for it.

        Raises BadData for an artifact that is damaged or missing, and NetworkFault where its store is remote.
        """
        return self.home.path(self) if self.home else self.folder

    def is_replaced(self) -> bool:
        """Whether another process sealed other content meanwhile."""
        return self.store.is_replaced(self)

    @property
    def store(self) -> "Store":
        assert self.home is not None, f"no store made {self.folder}"
        return self.home

    @property
    def manifest(self) -> Manifest | None:
        """As its store has it now; None where the artifact was removed."""
        return self.store.find(self.stage, self.key)


@dataclass(frozen=True)
class Leftover:
    """A folder, or objects below a name: ``place`` for people, its size, and the function that removes it."""

    place: str
    bytes: int
    remove: Callable[[], object]


class Store(abc.ABC):
    """The artifacts of a site. Methods that ask a bucket raise NetworkFault."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        """The folder of this machine: its state, the records, and the artifacts or copies of them."""
        self.say: Callable[[str], None] = lambda _: None
        """Receives messages about slow transfers and repairs."""

    # Finding

    @abc.abstractmethod
    def find(self, stage: str, key: str) -> Manifest | None:
        """The manifest, or None where there is no artifact; an unreadable or altered manifest counts as none."""

    @abc.abstractmethod
    def has(self, stage: str, key: str) -> bool:
        """Whether something is under the artifact's name, readable or not."""

    @abc.abstractmethod
    def list(self, stage: str = "") -> Iterator[Manifest]:
        """Every artifact, or those of a stage, by stage and key."""

    @abc.abstractmethod
    def names(self) -> Iterator[tuple[str, str]]:
        """Stage and key of everything that has a manifest, readable or not, by stage and key."""

    @abc.abstractmethod
    def address(self, stage: str, key: str) -> str:
        """Where the artifact is, for people."""

    @abc.abstractmethod
    def local(self) -> "Store":
        """The store of what concerns this machine alone."""

    # Reading

    @abc.abstractmethod
    def path(self, artifact: Artifact) -> Path:
        """The artifact's files on this machine: those of its manifest with their sums, and no others.

        Raises BadData for an artifact that is damaged, which is moved aside, or missing.
        """

    @abc.abstractmethod
    def path_as_it_is(self, manifest: Manifest) -> Path:
        """The same for readers that may write nothing: a damaged artifact stays where it is."""

    @abc.abstractmethod
    def damage(self, manifest: Manifest) -> str:
        """The first damage to the artifact's files, or ""; a file that looks as when it was hashed is taken as is."""

    @abc.abstractmethod
    def damages(self, manifest: Manifest) -> Sequence[str]:
        """The damage to each file, every byte read, and files that the manifest does not list.

        The next run makes a damaged artifact again, and moves unlisted files away before a stage reads the artifact.
        """

    # Making

    @abc.abstractmethod
    def begin(self, stage: str, key: str, resume: Mapping[str, str], attempt: str = "") -> Path:
        """A folder to write into. The caller holds the key's lock, so other unfinished folders of the key are stale.

        With ``resume``, the content digests of the inputs, an interrupted folder over the same content is reused; with
        ``attempt`` only if that attempt began it. The manifest will name the attempt that began the folder.
        """

    @abc.abstractmethod
    def seal(self, partial: Path, description: Mapping[str, Any]) -> Artifact:
        """Make the written folder an artifact, in place of any other. ``description``: the manifest's other fields."""

    @abc.abstractmethod
    def restore(self, stage: str, key: str, attempt: str = "") -> bool:
        """Bring back an artifact that this machine still has, after a replacement or a transfer that was cut short.

        With an ``attempt``, only an artifact of that attempt is brought back. Returns whether there was one.
        """

    # Removing

    @abc.abstractmethod
    def remove(self, stage: str, key: str) -> None:
        """Remove an artifact; other processes see all of it or none."""

    @abc.abstractmethod
    def quarantine(self, stage: str, key: str) -> str:
        """Rename a damaged artifact, so that its bytes are kept but it no longer exists; gives the new name."""

    @abc.abstractmethod
    def leftovers(self, before: float) -> Iterator[Leftover]:
        """What interrupted work left over and nobody modified since ``before``, in seconds since 1970."""

    # Sharing what is no artifact: nothing to do where every machine that has the folder has the files

    def share(self, path: Path) -> None:  # noqa: B027
        """Let other machines see a small file below the root, or an unfinished folder, as it is now."""

    def fetch_newer(self, folder: str) -> None:  # noqa: B027
        """Fetch the small files that others shared below ``folder``."""

    # The same in every store

    def is_replaced(self, artifact: Artifact) -> bool:
        """Whether another process sealed other content under the artifact's name."""
        manifest = self.find(artifact.stage, artifact.key)
        return manifest is not None and manifest.content != artifact.content

    def given(self, made: Manifest | None, argument: str) -> Manifest | None:
        """The artifact that the stage of ``made`` was given; None for none, and where one of both was removed."""
        reference = made.arguments.get(argument) if made else None
        return self.find(reference["artifact"], reference["key"]) if reference else None

    def artifact(self, manifest: Manifest) -> Artifact:
        folder = self.folder(manifest.stage, manifest.key)
        return Artifact(manifest.stage, manifest.key, folder, manifest.content, public_facts(manifest.facts), self)

    def folder(self, stage: str, key: str) -> Path:
        """Where this machine has the artifact or would have its copy."""
        return self.root / stage / key

    def unfinished_folders(self, stage: str, key: str) -> Sequence[Path]:
        """Where this machine makes the artifact, or began to."""
        return sorted((self.root / stage).glob(f"{key}.partial-*"))

    def failed_folder(self, stage: str, key: str) -> Path:
        """Where this machine keeps what says why the last try to make the artifact failed, until the next one."""
        return self.root / stage / f"{key}.failed"

    def lock_file(self, stage: str, key: str) -> Path:
        return self.root / "locks" / f"{stage}-{key}.lock"

    def is_locked(self, stage: str, key: str) -> bool:
        """Whether a process of this machine holds the artifact's lock."""
        return is_locked(f"{self.root}/locks/{stage}-{key}.lock")  # faster than a Path

    def holder(self, stage: str, key: str) -> str:
        """The process that holds the artifact's lock, as ``process 708 on vm``; "" where none does."""
        return lock_holder(self.lock_file(stage, key))
