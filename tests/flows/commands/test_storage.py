"""``repro verify`` names damaged artifacts, ``repro gc`` unneeded ones, in a folder and in a bucket."""

import fcntl
import json
import os
import re
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from made_up_roots import artifact, record, row_of
from s3_server import Server
from small_pipeline import run_small
from toy_stages import Untracked

from flows.commands.gc import gc
from flows.commands.verify import verify
from flows.inspection.garbage_collection import find_garbage
from flows.runner.outcome import cached_outcome
from flows.runner.request import RunRequest, plan
from infra.errors import BadConfiguration, BadData, Fault
from infra.site import Site, open_store
from infra.store.local import LocalStore
from infra.store.s3 import S3Store

SHARDS = RunRequest("small", until="shard")


@pytest.fixture(params=["folder", "bucket"])
def root(request: pytest.FixtureRequest, mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The run ``small`` up to its shards, in a folder and in a bucket."""
    monkeypatch.setattr("flows.runner.run.Tracker", Untracked)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    if request.param == "bucket":
        s3: Server = request.getfixturevalue("s3")
        monkeypatch.setenv("REPRO_ROOT", f"s3://{s3.bucket}/prefix")
        monkeypatch.setenv("REPRO_CACHE", str(tmp_path / "cache"))
    run_small(SHARDS)
    return str(request.param)


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out.strip().splitlines()[-1])


def corrupt(stage: str, key: str, file: str) -> None:
    """Change a byte so that only reading the file shows it."""
    store = open_store(Site.named())
    if not isinstance(store, S3Store):
        path = store.folder(stage, key) / file
        status = path.stat()
        with path.open("r+b") as opened:
            opened.write(b"x")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        return
    name = next(name for name in store.bucket.list(f"{stage}/{key}") if name.endswith(file))
    store.bucket.put(f"{stage}/{key}/{name}", b"x" + store.bucket.read(f"{stage}/{key}/{name}")[1:])
    # As if the store had not noticed: the manifest that this machine saw is given the new ETag.
    seen = store.root / "published" / f"{stage}-{key}.json"
    kept = json.loads(seen.read_text())
    kept["document"]["etags"][file] = store.bucket.list(f"{stage}/{key}")[name].etag
    seen.write_text(json.dumps(kept))
    store.local().remove(stage, key)


def test_a_changed_byte_is_named_and_the_artifact_is_made_again(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    verify(as_json=True)
    whole = printed(capsys)
    assert whole["damaged"] == []
    assert whole["artifacts"] >= len(plan(SHARDS).rows)
    shard = plan(SHARDS).rows[-1]
    corrupt(shard.stage, shard.key, "00000.arrow")
    assert cached_outcome(plan(SHARDS)), "a plan does not read the files"
    with pytest.raises(Fault, match="1 of .* artifacts are damaged"):
        verify("small", as_json=True)
    (damaged,) = printed(capsys)["damaged"]
    assert (damaged["key"], damaged["wrong"]) == (shard.key, ["00000.arrow was altered"])
    assert [row.key for row in run_small(SHARDS).rows if row.state == "completed"] == [shard.key]
    verify("small")


def test_what_no_kept_run_needs_goes_and_only_when_printed(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    more = RunRequest("small", until="shard", overrides=("vocabulary.size=380",))
    run_small(more)
    store = open_store(Site.named())
    before = list(store.names())
    gc(as_json=True)
    found = printed(capsys)
    assert found["removable"] == [], "both have a record"
    for path in (store.root / "runs" / "small").iterdir():
        if json.loads(path.read_text())["overrides"]:
            path.unlink()
            if isinstance(store, S3Store):
                store.bucket.delete([f"runs/small/{path.name}"])
    gc(as_json=True)
    found = printed(capsys)
    own = {row.key for row in plan(more).rows} - {row.key for row in plan(SHARDS).rows}
    assert {each["key"] for each in found["removable"]} == own
    assert all(each["bytes"] > 0 for each in found["removable"])
    assert {each["why"] for each in found["kept"]} == {"run small"}
    assert list(store.names()) == before, "without --delete nothing is deleted"
    held = next(each for each in found["removable"] if each["stage"] == "learn_bpe")
    with store.lock_file("learn_bpe", held["key"]).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        gc(delete=True)
    assert {key for _, key in before} - {key for _, key in list(store.names())} == own - {held["key"]}
    capsys.readouterr()
    gc(delete=True)
    assert re.search(r"to delete: [\d.]+ kB\n", said := capsys.readouterr().out)
    assert "removable" not in said
    assert cached_outcome(plan(SHARDS)), "the kept run is complete"
    assert {row.state for row in plan(more).rows if row.key in own} <= {"miss", "waits"}
    if isinstance(store, S3Store):
        assert not [name for name in store.bucket.list("") if any(key in name for key in own)]


def test_a_named_artifact_that_is_gone_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REPRO_ROOT", f"{tmp_path}")
    made = [artifact(LocalStore(tmp_path), stage, f"{stage}1") for stage in ("download", "clean", "learn_bpe")]
    record(tmp_path, "x", datetime(2026, 11, 1, tzinfo=UTC), [*map(row_of, made)])
    shutil.rmtree(made[0].folder)
    (made[1].folder / "manifest.json").unlink()
    with pytest.raises(Fault, match="2 of 3 artifacts are damaged"):
        verify("x", as_json=True)
    wrong = {each["stage"]: each["wrong"] for each in printed(capsys)["damaged"]}
    assert wrong == {stage: ["it is missing"] for stage in ("download", "clean")}


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    """A root with a cleaned text that the run ``small`` made."""
    store = LocalStore(tmp_path / "root")
    monkeypatch.setenv("REPRO_ROOT", f"{store.root}")
    record(store.root, "small", datetime(2026, 11, 1, tzinfo=UTC), [row_of(artifact(store, "clean", "c0ffee"))])
    return store


def test_gc_sees_what_a_folder_holds_and_leaves_foreign_files(
    made_up: LocalStore, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(made_up.root / "runs")
    foreign = made_up.root / "website" / "public"
    foreign.mkdir(parents=True)
    (foreign / "manifest.json").write_text('{"name": "no artifact"}')
    (foreign / "page.html").write_text("page")
    gc(as_json=True)
    written = {each["key"]: each["bytes"] for each in printed(capsys)["removable"]}
    assert written == {"c0ffee": (made_up.folder("clean", "c0ffee") / "data.txt").stat().st_size}
    gc(delete=True)
    assert list(made_up.names()) == [("website", "public")]


def test_gc_deletes_only_old_leftovers_and_refuses_unknown_runs_and_unreadable_records(made_up: LocalStore) -> None:
    old, young = (made_up.begin("train", key, {}) for key in ("k1", "k2"))
    eight_days_ago = time.time() - 8 * 24 * 3600
    os.utime(old, (eight_days_ago, eight_days_ago))
    gc(delete=True)
    assert (old.exists(), young.exists()) == (False, True)
    assert list(made_up.names()) == [("clean", "c0ffee")]
    with pytest.raises(BadConfiguration, match="--keep is 'other', .*small"):
        gc(keep=("other",))
    next((made_up.root / "runs" / "small").iterdir()).write_text("{")
    with pytest.raises(BadData, match="cannot be read"):
        gc(delete=True)


def test_an_incomplete_upload_is_a_leftover_once_it_is_old_whatever_this_clock_says(
    s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, clock = Site(root=tmp_path, remote=f"s3://{s3.bucket}/prefix"), time.time
    store = open_store(site)
    assert isinstance(store, S3Store)
    store.bucket.put("clean/k1/0123/a.txt", b"half")
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: clock() + 365 * 24 * 3600)
        assert not find_garbage(site).leftovers, "its manifest may follow"
    (left,) = store.leftovers(time.time() + 3600)
    assert (left.place, left.bytes) == ("clean/k1/0123", 4)
    left.remove()
    assert not store.bucket.list("")
