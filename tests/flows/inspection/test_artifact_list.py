"""Readable names mean the newest artifact of a stage, in every command that takes them."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from made_up_roots import record
from s3_server import Server
from small_pipeline import run_small
from toy_stages import Untracked

from flows.commands.show import show
from flows.commands.verify import verify
from flows.inspection.artifacts import folders_of, list_artifacts
from flows.inspection.compare import find_system
from flows.runner.artifact_names import ArtifactName, is_version, parse_name
from flows.runner.request import RunRequest, plan
from infra.errors import BadConfiguration, BadData, Fault
from infra.site import Site, open_store

CLEAN = RunRequest("small", until="clean")


def test_names_have_a_run_a_stage_and_an_item() -> None:
    assert parse_name("demo") == ArtifactName("demo")
    assert parse_name("demo/download/demo/train.en") == ArtifactName("demo", "download", "demo/train.en")
    with pytest.raises(BadConfiguration, match=r"'claen' .*did you mean clean\?"):
        parse_name("demo/claen")
    with pytest.raises(BadConfiguration, match="'demo/1' names a version, allowed here is a run, such as demo"):
        parse_name("demo/1")
    with pytest.raises(BadConfiguration, match="'/clean' names no run"):
        parse_name("/clean")
    versions = {"demo@champion": True, "demo/3": True, "demo": False, "demo/clean": False, "demo/score/3": False}
    assert {text: is_version(text) for text in versions} == versions


def test_a_finished_run_is_listed_whole(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(artifacts=True, as_json=True)
    listed = json.loads(capsys.readouterr().out)["artifacts"]
    rows = plan(RunRequest("small")).rows
    assert sorted((each["stage"], each["item"], each["key"]) for each in listed) == sorted(
        (row.stage, row.item, row.key) for row in rows
    )
    assert {each["state"] for each in listed} == {"there"}
    assert all(each["bytes"] > 0 and each["age_seconds"] > 0 for each in listed)
    for each in listed:
        assert each["name"] == "/".join(filter(None, ("small", each["stage"], each["item"])))
        assert Path(each["path"]).is_dir()
    show("small/score", artifacts=True)
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} == {"small/score/dev", "small/score/test"}
    assert [each["made"] for each in listed] == sorted((each["made"] for each in listed), reverse=True)


def test_a_name_means_the_newest_artifact_without_overrides(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = Site.named()
    old = folders_of("small/clean", site)
    made = run_small(RunRequest("small", until="clean", overrides=("profile=tutorial",)))
    assert folders_of("small/clean", site) == old
    show("small/clean", path=True, overrides=("profile=tutorial",))
    printed = capsys.readouterr().out
    assert printed == f"{made.rows[-1].path}\n"
    assert [Path(printed.strip())] != old
    with pytest.raises(BadConfiguration, match="--set a=b .*--set profile=tutorial"):
        folders_of("small/clean", site, ("a=b",))


def test_missing_and_damaged_artifacts_are_marked(small: Path) -> None:
    site = Site.named()
    (cleaned,), (averaged,) = folders_of("small/clean", site), folders_of("small/average", site)
    shutil.rmtree(cleaned)
    with (averaged / "model.json").open("a") as file:
        file.write(" ")
    states = {each.stage: (each.state, each.why) for each in list_artifacts("small", site)}
    assert states["clean"] == ("missing", "")
    assert states["average"][0] == "damaged"
    assert "model.json has" in states["average"][1]
    assert averaged.is_dir(), "a list moves nothing"
    with pytest.raises(BadData, match="small/clean .*missing"):
        folders_of("small/clean", site)
    with pytest.raises(BadData, match="small/average .*model.json"):
        folders_of("small/average", site)


def test_what_does_not_exist_is_named(small: Path) -> None:
    site = Site.named()
    with pytest.raises(BadConfiguration, match="'smal' .*: small$"):
        list_artifacts("smal", site)
    with pytest.raises(BadConfiguration, match="'small/score/val' .*small/score/dev, small/score/test"):
        list_artifacts("small/score/val", site)
    record(site.root, "stopped", datetime.now(UTC), [])
    with pytest.raises(BadConfiguration, match="'stopped' has no artifact on record here, there is: small$"):
        list_artifacts("stopped", site)
    with pytest.raises(BadConfiguration, match="'small' .*small/download, "):
        folders_of("small", site)


def test_other_commands_take_names(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = Site.named()
    assert list(find_system("small/score/test", site).scores) == ["test"]
    assert find_system("small/score", site).scores == find_system("small", site).scores
    with pytest.raises(BadConfiguration, match="'small/clean' .*small/score"):
        find_system("small/clean", site)
    (folder,) = folders_of("small/clean", site)
    verify("small/clean", "small/score", as_json=True)
    assert json.loads(capsys.readouterr().out)["artifacts"] == 3
    (folder / "pairs.parquet").write_bytes(b"x")
    with pytest.raises(Fault, match="1 of 1 artifacts are damaged"):
        verify("small/clean")


def test_a_bucket_is_listed_and_downloaded_on_demand(
    s3: Server, mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("flows.runner.run.Tracker", Untracked)
    monkeypatch.setenv("REPRO_ROOT", f"s3://{s3.bucket}/prefix")
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path / "first"))
    run_small(CLEAN)
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path / "second"))
    listed = {each.name: each for each in list_artifacts("small", Site.named())}
    assert listed["small/clean"].path.startswith("s3://")
    assert {each.state for each in listed.values()} == {"there"}
    cache = open_store(Site.named()).root
    assert not (cache / "clean").exists(), "a list downloads nothing"
    show("small/clean", path=True)
    assert (Path(capsys.readouterr().out.strip()) / "pairs.parquet").is_file()
    assert [path.name for path in cache.glob("*") if path.name in ("clean", "download")] == ["clean"]
