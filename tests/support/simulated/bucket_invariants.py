"""What must hold in a bucket that machines share, checked before each write and each deletion.

A manifest that no machine had when this one began its last listing may be lost, where a request that replaces or
deletes another one follows that listing at once: no S3 request does either on a condition everywhere.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from infra.store.checkpoint_sync import INDEX
from infra.store.manifest import MANIFEST, Manifest, parse_manifest
from simulated.cluster import Cluster, Member
from simulated.machine import Violation
from simulated.objects import Objects
from simulated.pipeline import World
from tasks.engine.stage import progress

PREFIX = "prefix/"
WORK_SECONDS, LOOKS = 20.0, 3
"""How often ``total`` looks whether it may go on, and how many times for each part."""


class Watch:
    """Watches the bucket of a world. Raises Violation."""

    def __init__(self, cluster: Cluster, objects: Objects, world: World) -> None:
        self.cluster, self.objects, self.world = cluster, objects, world
        self.removed_by: dict[str, Member | None] = {}
        """Which process deleted an object."""
        self.index_by: dict[str, Member | None] = {}
        """Which process wrote the index of a snapshot last."""
        self.damaged: set[str] = set()
        """Artifacts, as ``stage/key``, in which something was damaged behind the store's back."""
        self._parsed: dict[tuple[str, bytes], tuple[Manifest, dict[str, Any]] | None] = {}
        objects.on_write, objects.on_delete = self.before_write, self.before_delete

    def before_write(self, key: str, content: bytes) -> None:
        place, _, name = key.removeprefix(PREFIX).rpartition("/")
        if name == MANIFEST:
            self._check_manifest(place, content)
        elif name == INDEX and "resume-" in place:
            self._check_index(place, content)
            self.index_by[key] = self.cluster.current

    def before_delete(self, key: str) -> None:
        place, _, name = key.removeprefix(PREFIX).rpartition("/")
        self.removed_by[key] = self.cluster.current
        if name == MANIFEST:
            if self._just_looked(place):
                return
            if self.whole(place):
                raise Violation(f"{place} was sealed and is removed")
            folder, content = f"{PREFIX}{place}/manifest.bad-", self.objects.content[key]
            if not any(name.startswith(folder) and kept == content for name, kept in self.objects.content.items()):
                raise Violation(f"the damaged manifest of {place} is not kept")
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
        parsed = self.find(place)
        if parsed is None or self._missing(place, *parsed):
            return None
        return parsed[0]

    def places(self) -> list[str]:
        """All artifacts with a manifest, readable or not."""
        return [
            key.removeprefix(PREFIX)[: -len(MANIFEST) - 1] for key in self.objects.content if key.endswith(MANIFEST)
        ]

    def _files_of(self, place: str) -> list[str]:
        parsed = self.find(place)
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
        if self._just_looked(place):
            return
        if old and old.inputs == parsed[0].inputs and stage not in self.world.start.forced:
            raise Violation(f"{stage} was sealed and is replaced by another machine's")

    def _check_index(self, place: str, content: bytes) -> None:
        """An index is written after its files, and has all parts of the one that its process wrote before."""
        if self.artifact_of(place) in self.damaged:
            return
        new, key = json.loads(content), f"{PREFIX}{place}/{INDEX}"
        if missing := self._missing_of_snapshot(place, new):
            # A machine that sealed the artifact removes others' snapshots; ``begin`` does not use half of one.
            remover = self.removed_by.get(f"{PREFIX}{place}/{new['files'][missing]}")
            if remover in (None, self.cluster.current):
                raise Violation(f"a snapshot is half sent: {missing}")
            return
        old = json.loads(self.objects.content.get(key, b"null"))
        if not old or self.index_by.get(key) is not self.cluster.current or self._missing_of_snapshot(place, old):
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
        """Between two parts of ``total``: time passes, and the folder is sent."""
        process = self.cluster.current
        assert process
        for _ in range(LOOKS):
            self.cluster.sleep(WORK_SECONDS)
            self.world.stores[process].share(out)
            progress(1, 2)

    def _just_looked(self, place: str) -> bool:
        """Whether the last request of the present thread listed the place."""
        return self.objects.looked_at.get(self.cluster.thread) == f"{PREFIX}{place}/"
