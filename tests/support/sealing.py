"""An artifact for tests of stores."""

from pathlib import Path
from typing import Any

from infra.store.local import LocalStore
from infra.store.manifest import Manifest
from infra.store.store import Artifact, Store

FILES = {"a.txt": b"alpha", "deep/b.bin": b"\0" * 1000, "metrics.jsonl": b'{"time": 1}\n'}
DESCRIPTION: dict[str, Any] = {
    "stage": "clean",
    "key": "k1",
    "version": 1,
    "item": "",
    "arguments": {},
    "inputs": {},
    "facts": {"pairs": 3},
    "seconds": 0.1,
    "made": {},
}


def sealed(store: Store, key: str = "k1", files: dict[str, bytes] = FILES, **changes: Any) -> Artifact:
    partial = store.begin(changes.get("stage", DESCRIPTION["stage"]), key, {})
    for name, content in files.items():
        (partial / name).parent.mkdir(parents=True, exist_ok=True)
        (partial / name).write_bytes(content)
    return store.seal(partial, DESCRIPTION | {"key": key} | changes)


def manifest_of(store: Store, stage: str = "clean", key: str = "k1") -> Manifest:
    """The manifest of an artifact that must exist."""
    manifest = store.find(stage, key)
    assert manifest
    return manifest


class Unchecked(LocalStore):
    """A store of folders that were written by hand, without manifests."""

    def path(self, artifact: Artifact) -> Path:
        return artifact.folder


def unsealed(root: Path, stage: str, key: str) -> Artifact:
    """A folder that stands for an artifact, where no manifest is needed."""
    return Artifact(stage, key, root / stage / key, home=Unchecked(root))
