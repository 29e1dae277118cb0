"""Every place where a name from outside becomes a path refuses the same twenty names, and writes nothing for them."""

import io
import json
import tarfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from sealing import DESCRIPTION, manifest_of, sealed

from flows import api
from flows.runner import records
from flows.runner.artifact_names import find_artifacts
from flows.runner.recorded_runs import read_history
from flows.website.write import _known_files
from infra.errors import BadConfiguration, BadData, Fault
from infra.guards.path_names import is_path_name
from infra.servers.database_copies import restore
from infra.store.checkpoint_sync import INDEX, Snapshot
from infra.store.local import LocalStore
from infra.store.manifest import MANIFEST, Manifest, content_digest, manifest_envelope, parse_manifest
from infra.store.s3 import S3Store
from infra.store.s3_client import Bucket, NoSuchKey
from tasks.corpus.archives import open_text
from tasks.corpus.catalogue import File, Text

HOSTILE = (
    "",
    ".",
    "..",
    "/",
    "/tmp/repro-hostile-name",
    "//x",
    "../x",
    "../../x",
    "a/../x",
    "a/..",
    "a//b",
    "a/",
    "./a",
    "a/./b",
    "a\\b",
    "..\\x",
    "a\0b",
    "a\nb",
    "a\x1b[2Jb",
    "\u202ex",
)
SUM = "0" * 64


class MadeUpBucket(Bucket):
    """A bucket with the given objects; it lists them as a server does."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__("s3://made-up")
        self.objects = objects
        self.deleted: list[str] = []

    def _call(self, name: str, request: str, **arguments: Any) -> Any:
        if request != "list_objects_v2":
            raise AssertionError(f"{request} {name} for a name that must be ignored")
        found = {key: text for key, text in self.objects.items() if key.startswith(arguments["Prefix"])}
        moment = type("Moment", (), {"timestamp": lambda _: 1.0})()
        return {
            "Contents": [{"Key": k, "Size": len(t), "ETag": "e", "LastModified": moment} for k, t in found.items()],
            "ResponseMetadata": {"HTTPHeaders": {"date": "Wed, 25 Nov 2026 20:00:00 GMT"}},
        }

    def read(self, name: str) -> bytes:
        if name not in self.objects:
            raise NoSuchKey(name)
        return self.objects[name]

    def abort_uploads(self, before: float, *, delete: bool) -> int:
        return 0


def envelope(**changes: Any) -> bytes:
    """A manifest with right sums, and the fields that a hostile writer chooses."""
    files = changes.pop("files", {"a.txt": {"sha256": SUM, "bytes": 1}})
    given = DESCRIPTION | {"files": files, "content": content_digest(files)} | changes
    return json.dumps(manifest_envelope(Manifest(**given)) | {"id": "0123", "etags": {}}).encode()


def received(root: Path, name: str) -> None:
    S3Store(root, MadeUpBucket({f"runs/{name}": b"{}", "runs/demo": b"where a folder belongs"}), 1).fetch_newer("runs")


def listed(root: Path, name: str) -> None:
    objects = {f"{name}/{MANIFEST}": envelope()}
    stage, _, key = name.partition("/")
    objects |= {f"clean/{name}/{MANIFEST}": envelope(key=name), f"{name}/k1/{MANIFEST}": envelope(stage=name)}
    objects |= {f"{name}/{MANIFEST}": envelope(stage=stage, key=key), f"clean/k1/{MANIFEST}": envelope()}
    store = S3Store(root, MadeUpBucket(objects), 1)
    assert list(store.names()) == [("clean", "k1")]
    assert [manifest.key for manifest in store.list()] == ["k1"]
    (root / "published" / "clean-k1.json").unlink()
    (root / "published").rmdir()


def in_manifest(root: Path, name: str) -> None:
    for changes in ({"files": {name: {"sha256": SUM, "bytes": 1}}}, {"inputs": {f"clean/{name}": "c"}}):
        assert parse_manifest(envelope(**changes), "clean", "k1") is None
    assert parse_manifest(envelope(key=name), "clean", name) is None
    assert parse_manifest(envelope(stage=name), name, "k1") is None
    assert parse_manifest(envelope(), "clean", "k1") is not None
    remote = json.loads(envelope()) | {"id": name}
    store = S3Store(root, MadeUpBucket({f"clean/k1/{MANIFEST}": json.dumps(remote).encode()}), 1)
    assert store.find("clean", "k1") is None


def in_record(root: Path, name: str) -> None:
    """A record names an artifact by stage and key, and a manifest names its inputs."""
    for store in (LocalStore(root), S3Store(root, MadeUpBucket({f"clean/{name}/{MANIFEST}": envelope(key=name)}), 1)):
        assert store.find("clean", name) is None
        assert store.find(name, "k1") is None


def in_snapshot(root: Path, name: str) -> None:
    folder = root.parent / "partial"
    folder.mkdir(exist_ok=True)
    index = json.dumps({"attempt": "", "files": {name: SUM}}).encode()
    said: list[str] = []
    bucket = MadeUpBucket({f"train/k1/resume-1/w/{INDEX}": index, f"train/k1/resume-1/w/{SUM}": b"x"})
    Snapshot(bucket, "train/k1/resume-1", folder, said.append).begin("")
    assert "is not used" in said[-1]
    assert not list(folder.iterdir())
    folder.rmdir()


def in_archive(root: Path, name: str) -> None:
    if name:
        with pytest.raises(ValueError, match="member"):
            Text(File("a.tgz", sha256=SUM), member=name)
    path = root.parent / "a.tgz"
    with tarfile.open(path, "w:gz") as tar:
        entry = tarfile.TarInfo(name)
        entry.size = 1
        tar.addfile(entry, io.BytesIO(b"x"))
    with tarfile.open(path) as tar:
        read = tar.getnames()[0].removeprefix("./")
    if not is_path_name(read) and read != ".":  # tar itself keeps no empty name, and ends a name at its first \0
        with ExitStack() as stack, pytest.raises(BadData, match="the archive is refused"):
            open_text(path, "a.en", stack)
    path.unlink()


def in_catalogue(root: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"file\.path"):
        File(name, sha256=SUM)


def in_earlier_site(root: Path, name: str) -> None:
    folder = root.parent / "public"
    folder.mkdir()
    (folder / "site.json").write_text(json.dumps([name, "index.html"]))
    assert _known_files(folder) == {"index.html"}
    (folder / "site.json").unlink()
    folder.rmdir()


def in_backup(root: Path, name: str) -> None:
    folder = root.parent / "backup"
    folder.mkdir()
    (folder / "backup.json").write_text(json.dumps({"files": [name]}))
    with pytest.raises(BadConfiguration):
        restore(root, folder, print)
    (folder / "backup.json").unlink()
    folder.rmdir()


def in_command(root: Path, name: str) -> None:
    """Names that a user, a notebook or a parameter of a flow run gives."""
    store = LocalStore(root)
    assert read_history(store, name) == []
    assert (root / records.record_folder(name)).resolve().is_relative_to(root / "runs")
    for text in (name, f"{name}/clean", f"small/clean/{name}", f"small/{name}"):
        with suppress(BadConfiguration):
            assert find_artifacts(store, text) == {}
        with pytest.raises(Fault):
            api.artifact(text)
        with pytest.raises(Fault):
            api.curves(text)


ENTRIES: tuple[Callable[[Path, str], None], ...] = (
    received,
    listed,
    in_manifest,
    in_record,
    in_snapshot,
    in_archive,
    in_catalogue,
    in_earlier_site,
    in_backup,
    in_command,
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root deep in other folders, with an artifact beside it and below it."""
    place = tmp_path / "one" / "two" / "root"
    sealed(LocalStore(place))
    sealed(LocalStore(place.parent), stage="x")
    monkeypatch.setenv("REPRO_ROOT", f"{place}")
    return place


def tree(folder: Path) -> set[str]:
    return {f"{path}" for path in folder.rglob("*") if "mlflow" not in path.name and path.name != "locks"}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.__name__)
def test_a_hostile_name_is_refused_and_writes_nothing(entry: Callable[[Path, str], None], root: Path) -> None:
    before = tree(root.parents[1])
    for name in HOSTILE:
        entry(root, name)
        assert tree(root.parents[1]) == before, ascii(name)
        assert not Path("/tmp/repro-hostile-name").exists()
    assert manifest_of(LocalStore(root)).key == "k1"
