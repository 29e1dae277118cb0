"""The graph of artifacts: both directions, versions, removed and altered artifacts, few requests."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from made_up_roots import artifact, chain
from s3_server import Server

from flows.inspection.artifact_graph import ArtifactGraph, read_graph, read_nodes
from infra.site import Site, open_store
from infra.store.local import LocalStore
from infra.store.manifest import MANIFEST
from infra.tracking.model_version import Version


def version(number: int, **tags: str) -> Version:
    return Version("demo", number, datetime(2026, 1, 1, tzinfo=UTC), (), tags, "", "")


def graph_of(root: Path, *registered: Version) -> ArtifactGraph:
    return ArtifactGraph(read_nodes(LocalStore(root).list()), registered)


def test_a_version_whose_registration_was_removed_is_known_by_its_tags(tmp_path: Path) -> None:
    text = artifact(LocalStore(tmp_path), "download", "d0")
    *_, weights, scores, registered = chain(LocalStore(tmp_path), text)
    LocalStore(tmp_path).remove(registered.stage, registered.key)
    tags = {"key.average": weights.key, "key.score.test": scores.key, "dev_set": "dev"}
    assert graph_of(tmp_path, version(1, **tags)).versions_of["download", "d0"] == ["demo/1"]


def test_a_version_of_another_registry_with_the_same_label_is_not_the_registration(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    *_, weights, _, registered = chain(store, artifact(store, "download", "d0"), facts={"name": "demo", "version": "1"})
    other = artifact(store, "average", "b0ffee")
    graphs = [graph_of(tmp_path, version(1, **{"key.average": each.key})) for each in (weights, other)]
    assert [each.registration("demo/1") for each in graphs] == [[(registered.stage, registered.key)], []]
    assert graphs[1].versions_of["average", "b0ffee"] == ["demo/1"]
    assert ("average", weights.key) not in graphs[1].versions_of


def test_removed_and_altered_artifacts_have_no_node_but_their_users(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    text = artifact(store, "download", "d0")
    chain(store, text)
    store.remove("download", "d0")
    path = store.folder("average", "a0ffee") / MANIFEST
    path.write_text(path.read_text().replace('"pairs": 3', '"pairs": 4'))
    found = graph_of(tmp_path)
    assert {name[0] for name in found.nodes} == {"clean", "score", "register"}
    assert found.descendants([("download", "d0")]) == {("download", "d0"), ("clean", "c0ffee")}
    assert ("average", "a0ffee") in found.ancestors([("register", "40ffee")])


def test_a_bucket_costs_one_listing_and_each_new_manifest_one_request(
    s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRO_ROOT", f"s3://{s3.bucket}/prefix")
    monkeypatch.setenv("REPRO_CACHE", f"{tmp_path / 'first'}")
    store = open_store(Site.named())
    chain(store, artifact(store, "download", "d0"))
    artifact(store.local(), "register", "here")
    assert ("register", "here") in read_graph(Site.named()).nodes, "a version of this machine alone"
    monkeypatch.setenv("REPRO_CACHE", f"{tmp_path / 'second'}")
    s3.inject_faults()
    assert len(read_graph(Site.named()).nodes) == 5
    assert s3.inject_faults() == 1 + 5
    assert len(read_graph(Site.named()).nodes) == 5
    assert s3.inject_faults() == 1, "manifests are kept by their ETag"
    (tmp_path / "file").touch()
    monkeypatch.setenv("REPRO_CACHE", f"{tmp_path / 'file' / 'below'}")
    assert len(read_graph(Site.named()).nodes) == 5, "a cache that cannot be written is no obstacle"
