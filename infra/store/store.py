"""The interface of a store: a folder (``infra.store.local``) or a bucket with a cache (``infra.store.s3``).

An artifact is a sealed, immutable folder, found by its stage and its key. A stage writes into a folder from ``begin``;
``seal`` makes it an artifact atomically. The process that makes an artifact on this machine holds its ``lock_file``.
"""

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.guards.address_secrets import public_facts
from infra.processes.locks import is_locked
from infra.store.manifest import Manifest


@dataclass(frozen=True)
class Artifact:
    """A sealed folder: ``path()`` gives the folder of its files, ``facts`` the facts that its stage returned."""

    stage: str
    key: str
    folder: Path
    content: str = ""
    """Digest over the sorted paths and checksums of its files, without logs; empty until it is made."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    home: "Store | None" = field(default=None, repr=False, compare=False)
    """Its store; None for a folder that no store made."""

    def path(self) -> Path:
        """Return the local folder with the files. The first call of this process checks every byte.

        Raises BadData for a damaged or missing artifact, and NetworkFault if its store is remote.
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
        """The manifest that its store has now; None if the artifact was removed."""
        return self.store.find(self.stage, self.key)


@dataclass(frozen=True)
class Leftover:
    """A folder, or objects below a name: its ``place`` for messages, its size, and the function that removes it."""

    place: str
    bytes: int
    remove: Callable[[], object]
    """Returns False if the files are still there."""
    artifact: tuple[str, str] | None = None
    """Stage and key of the artifact that it is the state of, if any."""


class Store(abc.ABC):
    """The artifacts of a site. Methods that access a bucket raise NetworkFault."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        """The local folder: this machine's state, the records, and the artifacts or copies of them."""
        self.say: Callable[[str], None] = lambda _: None
        """Receives messages about slow transfers and repairs."""

    # Finding

    @abc.abstractmethod
    def find(self, stage: str, key: str) -> Manifest | None:
        """Return the manifest; None if there is no artifact, or its manifest is unreadable or altered."""

    @abc.abstractmethod
    def has(self, stage: str, key: str) -> bool:
        """Whether something has the artifact's name, readable or not."""

    @abc.abstractmethod
    def list(self, stage: str = "") -> Iterator[Manifest]:
        """Yield the manifests of all artifacts, or of one stage, sorted by stage and key."""

    @abc.abstractmethod
    def names(self) -> Iterator[tuple[str, str]]:
        """Yield stage and key of each artifact with a manifest, readable or not, sorted."""

    @abc.abstractmethod
    def address(self, stage: str, key: str) -> str:
        """Return the artifact's address, for messages."""

    @abc.abstractmethod
    def local(self) -> "Store":
        """Return the store of artifacts that only this machine uses."""

    # Reading

    @abc.abstractmethod
    def path(self, artifact: Artifact) -> Path:
        """Return the artifact's folder on this machine, with exactly the files and checksums of its manifest.

        Raises BadData for a missing artifact, and for a damaged one, which it moves aside.
        """

    @abc.abstractmethod
    def path_as_it_is(self, manifest: Manifest) -> Path:
        """Return the artifact's folder and change nothing: a damaged artifact stays in its place."""

    @abc.abstractmethod
    def damage(self, manifest: Manifest) -> str:
        """Return the first damage to the artifact's files, or "". Files with unchanged stamps are not hashed again."""

    @abc.abstractmethod
    def damages(self, manifest: Manifest) -> Sequence[str]:
        """Read every byte; return the damage to each file, and the files that the manifest does not list.

        The next run makes a damaged artifact again, and moves unlisted files away before a stage reads the artifact.
        """

    # Making

    @abc.abstractmethod
    def begin(self, stage: str, key: str, resume: Mapping[str, str], attempt: str = "") -> Path:
        """Return a folder to write into. The caller holds the key's lock, so the key's other folders are stale.

        ``resume`` holds the content digests of the inputs: an interrupted folder over the same content is reused. With
        ``attempt`` it is reused only if that attempt began it. The manifest will name the attempt.
        """

    @abc.abstractmethod
    def seal(self, partial: Path, description: Mapping[str, Any]) -> Artifact:
        """Make the written folder an artifact, and replace an old one. ``description``: the manifest's other fields."""

    @abc.abstractmethod
    def restore(self, stage: str, key: str, attempt: str = "") -> bool:
        """Restore an artifact that this machine still has after an interrupted replacement or transfer.

        With an ``attempt``, only an artifact of that attempt is restored. Returns whether there was one.
        """

    # Removing

    @abc.abstractmethod
    def remove(self, stage: str, key: str) -> None:
        """Remove an artifact atomically: other processes see all of it or nothing."""

    @abc.abstractmethod
    def quarantine(self, stage: str, key: str) -> str:
        """Rename a damaged artifact, so that its bytes are kept but it no longer exists; return the new name."""

    @abc.abstractmethod
    def leftovers(self, before: float) -> Iterator[Leftover]:
        """Yield leftovers of interrupted work that are unmodified since ``before`` (seconds since 1970)."""

    # Sharing other files: a folder needs nothing, because every machine that sees the folder sees its files

    def share(self, path: Path) -> None:  # noqa: B027
        """Send a small file below the root, or the present state of an unfinished folder, to other machines."""

    def fetch_newer(self, folder: str) -> None:  # noqa: B027
        """Fetch the small files below ``folder`` that other machines shared."""

    # The same in every store

    def is_replaced(self, artifact: Artifact) -> bool:
        """Whether another process sealed other content under the artifact's name."""
        manifest = self.find(artifact.stage, artifact.key)
        return manifest is not None and manifest.content != artifact.content

    def given(self, made: Manifest | None, argument: str) -> Manifest | None:
        """Return the artifact that the stage of ``made`` got as ``argument``; None if none, or if it was removed."""
        reference = made.arguments.get(argument) if made else None
        return self.find(reference["artifact"], reference["key"]) if reference else None

    def artifact(self, manifest: Manifest) -> Artifact:
        folder = self.folder(manifest.stage, manifest.key)
        return Artifact(manifest.stage, manifest.key, folder, manifest.content, public_facts(manifest.facts), self)

    def folder(self, stage: str, key: str) -> Path:
        """Return this machine's folder for the artifact or its copy."""
        return self.root / stage / key

    def unfinished_folders(self, stage: str, key: str) -> Sequence[Path]:
        """Return the folders in which this machine is making, or began to make, the artifact."""
        return sorted((self.root / stage).glob(f"{key}.partial-*"))

    def failed_folder(self, stage: str, key: str) -> Path:
        """Return the folder with the reason why the last try to make the artifact failed; the next try removes it."""
        return self.root / stage / f"{key}.failed"

    def lock_file(self, stage: str, key: str) -> Path:
        return self.root / "locks" / f"{stage}-{key}.lock"

    def is_locked(self, stage: str, key: str) -> bool:
        """Whether a process of this machine holds the artifact's lock."""
        return is_locked(f"{self.root}/locks/{stage}-{key}.lock")  # faster than a Path
