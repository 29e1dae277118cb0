"""What must hold in a bucket that machines share, checked before each write and each deletion.

A lease promises: nobody takes it over while its holder renews it within ``LEASE_SECONDS`` of the taker's clock, or
lives; the holder that lost it ends its work as soon as it reaches the bucket again; and a dead holder is waited for no
longer than ``LEASE_SECONDS`` and two looks. Two machines may make the same only where one is cut off from the bucket.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from infra.store.checkpoint_sync import INDEX
from infra.store.lease import LEASE, LEASE_SECONDS, POLL_SECONDS, RENEW_SECONDS
from infra.store.manifest import MANIFEST, Manifest, parse_manifest
from simulated.cluster import Cluster, Member
from simulated.machine import Violation
from simulated.objects import Objects
from simulated.pipeline import World
from tasks.engine.stage import progress

PREFIX = "prefix/"
WORK_SECONDS, LOOKS = 20.0, 3
"""How often ``total`` looks whether it may go on, and how many times for each part."""


class Written:
    """A lease: who wrote it, and when by each clock."""

    def __init__(self, process: Member, cluster: Cluster) -> None:
        self.process, self.at, self.ahead = process, cluster.now, list(cluster.ahead)


class Watch:
    """Watches the bucket of a world. Raises Violation."""

    def __init__(self, cluster: Cluster, objects: Objects, world: World) -> None:
        self.cluster, self.objects, self.world = cluster, objects, world
        self.leases: dict[str, Written] = {}
        self.damaged: set[str] = set()
        """Artifacts, as ``stage/key``, in which something was damaged behind the store's back."""
        self.waits_since: dict[Member, float] = {}
        self._parsed: dict[tuple[str, bytes], tuple[Manifest, dict[str, Any]] | None] = {}
        objects.on_write, objects.on_delete = self.before_write, self.before_delete

    def before_write(self, key: str, content: bytes) -> None:
        place, _, name = key.removeprefix(PREFIX).rpartition("/")
        if name == MANIFEST:
            self._check_manifest(place, content)
        elif name == LEASE:
            assert self.cluster.current
            self._check_takeover(key)
            self.leases[key] = Written(self.cluster.current, self.cluster)
        elif name == INDEX and "resume-" in place:
            self._check_index(place, content)

    def before_delete(self, key: str) -> None:
        place, _, name = key.removeprefix(PREFIX).rpartition("/")
        if name == MANIFEST:
            if self.whole(place):
                raise Violation(f"{place} was sealed and is removed")
            folder, content = f"{PREFIX}{place}/manifest.bad-", self.objects.content[key]
            if not any(name.startswith(folder) and kept == content for name, kept in self.objects.content.items()):
                raise Violation(f"the damaged manifest of {place} is not kept")
        elif name == LEASE:
            written = self.leases.get(key)
            if written and written.process is not self.cluster.current:
                raise Violation(f"{self.cluster.current} removes the lease of {written.process}")
        elif "resume-" not in place and key in self._files_of(self.artifact_of(place)):
            raise Violation(f"{key} is removed, and its artifact is there")

    def manifest(self, place: str) -> tuple[Manifest, dict[str, Any]] | None:
        """The manifest of ``stage/key`` that is readable in the bucket, with its envelope."""
        stage, _, key = place.partition("/")
        content = self.objects.content.get(f"{PREFIX}{place}/{MANIFEST}")
        if content is None:
            return None
        if (place, content) not in self._parsed:
            self._parsed[place, content] = parse_manifest(content, stage, key)
        return self._parsed[place, content]

    def whole(self, place: str) -> Manifest | None:
        """The manifest of an artifact of which every file is in the bucket with its sum."""
        parsed = self.manifest(place)
        if parsed is None or self._missing(place, *parsed):
            return None
        return parsed[0]

    def places(self) -> list[str]:
        """All artifacts with a manifest, readable or not."""
        return [
            key.removeprefix(PREFIX)[: -len(MANIFEST) - 1] for key in self.objects.content if key.endswith(MANIFEST)
        ]

    def _files_of(self, place: str) -> list[str]:
        parsed = self.manifest(place)
        return [f"{PREFIX}{place}/{parsed[1]['id']}/{name}" for name in parsed[0].files] if parsed else []

    def _missing(self, place: str, manifest: Manifest, envelope: dict[str, Any]) -> str:
        """The first file of an artifact that is not in the bucket with its sum."""
        for name, told in manifest.files.items():
            content = self.objects.content.get(f"{PREFIX}{place}/{envelope['id']}/{name}")
            if content is None or hashlib.sha256(content).hexdigest() != told["sha256"]:
                return name
        return ""

    def _check_manifest(self, place: str, content: bytes) -> None:
        """It is written after all its files; a whole one is replaced only if forced, or if its inputs changed."""
        stage, _, key = place.partition("/")
        parsed = parse_manifest(content, stage, key)
        if parsed is None:
            raise Violation(f"the manifest of {place} is none")
        if missing := self._missing(place, *parsed):
            raise Violation(f"{stage} is half sent: {missing}")
        old = self.whole(place)
        if old and old.inputs == parsed[0].inputs and stage not in self.world.start.forced:
            raise Violation(f"{stage} was sealed and is replaced by another machine's")

    def _check_takeover(self, key: str) -> None:
        old, taker = self.leases.get(key), self.cluster.current
        if key not in self.objects.content or old is None or old.process is taker or taker is None:
            return
        if self.cluster.is_gone(old.process.word, taker):
            return
        passed = self.cluster.now - old.at + self.cluster.ahead[taker.host] - old.ahead[taker.host]
        if passed < LEASE_SECONDS:
            raise Violation(f"{taker} takes the lease of {old.process} over, which was renewed {passed:g} s ago")

    def _check_index(self, place: str, content: bytes) -> None:
        """An index is written after its files, and has all parts of the one that it replaces."""
        if self.artifact_of(place) in self.damaged:
            return
        new, key = json.loads(content), f"{PREFIX}{place}/{INDEX}"
        holder = self.leases.get(f"{PREFIX}{self.artifact_of(place)}/{LEASE}")
        if missing := self._missing_of_snapshot(place, new):
            # Who lost the lease may write an index whose files the next holder removed; ``begin`` does not use it.
            if holder and holder.process is self.cluster.current:
                raise Violation(f"a snapshot is half sent: {missing}")
            return
        old = json.loads(self.objects.content.get(key, b"null"))
        if not old or old["attempt"] != new["attempt"] or self._missing_of_snapshot(place, old):
            return
        if gone := {name for name in old["files"] if name.startswith("part-")} - new["files"].keys():
            raise Violation(f"an older snapshot replaces one with {gone}")

    def _missing_of_snapshot(self, place: str, index: dict[str, Any]) -> str:
        for name, sha256 in index["files"].items():
            content = self.objects.content.get(f"{PREFIX}{place}/{sha256}")
            if content is None or hashlib.sha256(content).hexdigest() != sha256:
                return str(name)
        return ""

    @staticmethod
    def artifact_of(place: str) -> str:
        return "/".join(place.split("/")[:2])

    def work(self, out: Path) -> None:
        """Between two parts of ``total``: time passes, the folder is sent, and the lease is this process's."""
        process = self.cluster.current
        assert process
        for _ in range(LOOKS):
            self._check_holder(process, out)
            self.cluster.sleep(WORK_SECONDS)
            self.world.stores[process].sync_checkpoint(out)
            progress(1, 2)

    def _check_holder(self, process: Member, out: Path) -> None:
        stage, key = out.parent.name, out.name.partition(".")[0]
        written = self.leases.get(f"{PREFIX}{stage}/{key}/{LEASE}")
        if written is None:
            raise Violation(f"{process} makes {stage} without a lease")
        late = self.cluster.now - max(written.at, process.troubled_until)
        if written.process is not process and late > RENEW_SECONDS + WORK_SECONDS + 1:
            raise Violation(f"{process} goes on with {stage}, which {written.process} took over {late:g} s ago")

    def waits(self, folder: str) -> None:
        """A process looks at the lease that another one has."""
        process, written = self.cluster.current, self.leases.get(f"{PREFIX}{folder}/{LEASE}")
        assert process
        if written is None or written.process is process:
            return
        since = max(written.at, process.troubled_until, self.waits_since.get(process, self.cluster.now))
        if self.cluster.now - since > LEASE_SECONDS + 2 * POLL_SECONDS:
            raise Violation(f"{process} still waits for {written.process}, which is silent since {since}")
