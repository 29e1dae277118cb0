"""``repro show``: every way to name a start, both directions, nearest names, nothing written."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from made_registry import version
from made_up_roots import artifact, chain, record, row_of
from sealing import manifest_of, sealed

from benchmarks.large_root import write_registry
from flows.commands.show import show
from flows.inspection.artifact_graph import ArtifactNode
from flows.inspection.artifacts import find_lineage
from flows.views.lineage_view import lineage_text
from infra.errors import BadConfiguration
from infra.site import Site
from infra.store.local import LocalStore
from infra.store.store import Artifact

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Artifact]:
    """A raw file, cleaned text, weights, scores and a registration; the run ``demo`` made them, another reused some."""
    monkeypatch.setenv("REPRO_ROOT", f"{tmp_path}")
    store = LocalStore(tmp_path)
    text = artifact(store, "download", "d0ffee", item="demo/train.de")
    made = chain(store, text, facts={"name": "demo", "version": 1})
    items = ["demo/train.de", "", "", "test", ""]
    record(tmp_path, "demo", BEGAN, [row_of(each, item) for each, item in zip(made, items, strict=True)])
    record(tmp_path, "other", BEGAN.replace(day=2), [row_of(made[1], state="cached")])
    return made


@pytest.mark.usefixtures("made")
def test_a_start_is_named_in_many_ways() -> None:
    for stage, texts in {
        "download": ("train.de", "demo/train.de", "d0ffee", "download/d0ffee"),
        "clean": ("demo/clean", "other/clean"),
        "score": ("demo/score/test",),
        "register": ("demo",),
    }.items():
        for text in texts:
            assert [name[0] for name in find_lineage(text, Site.named()).start] == [stage], text


def test_both_directions_in_json(made: list[Artifact], capsys: pytest.CaptureFixture[str]) -> None:
    show("demo/clean", as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["start"] == ["clean/c0ffee"]
    sides = {each["stage"]: each["side"] for each in found["artifacts"]}
    later = dict.fromkeys(("average", "score", "register"), "used_by")
    assert sides == {"download": "made_from", "clean": "start"} | later
    (cleaned,) = (each for each in found["artifacts"] if each["side"] == "start")
    assert (cleaned["names"], cleaned["made_by_run"]) == (["demo/clean", "other/clean"], "repro run demo")
    assert (cleaned["cached_in_runs"], cleaned["state"], cleaned["facts"]) == (1, "there", {"pairs": 3})


def test_the_text_says_what_was_removed(made: list[Artifact], capsys: pytest.CaptureFixture[str]) -> None:
    LocalStore(Site.named().root).remove("download", "d0ffee")
    show("demo/score/test")
    shown = capsys.readouterr().out
    assert "demo/download/demo/train.de  download/d0ffee  missing: it was removed" in shown
    above, below = shown.split("used by")
    assert "demo/average" in above.split("made from")[1]
    assert "demo/register" in below
    show("d0ffee")
    assert "demo/clean" in capsys.readouterr().out.split("used by")[1], "what was made from it is still known"


def test_a_training_that_was_resumed_took_the_time_of_all_its_parts(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    resumed = sealed(store, "resumed", stage="train", seconds=5.0, facts={"seconds": 50.0})
    assert ArtifactNode.of(manifest_of(store, "train", resumed.key)).seconds == 50.0


def test_a_name_of_nothing_or_of_several_is_refused(made: list[Artifact]) -> None:
    for text, near in (("demo/claen", "clean"), ("demos", "demo")):
        with pytest.raises(BadConfiguration, match=near):
            find_lineage(text, Site.named())
    artifact(LocalStore(Site.named().root), "clean", "c0ffee2")
    with pytest.raises(BadConfiguration, match="clean/c0ffee, clean/c0ffee2"):
        find_lineage("c0ffee", Site.named())


def test_versions_whose_training_began_with_a_version(made: list[Artifact], tmp_path: Path) -> None:
    weights, store = made[2], LocalStore(tmp_path)
    for number, trained in enumerate((artifact(store, "train", "7ffee1", [weights]), made[1]), start=1):
        averaged = artifact(store, "average", f"a7ffee{number}", [trained])
        arguments = {"report": {"artifact": "report", "key": "gone"}}
        facts = {"name": "other", "version": number}
        artifact(store, "register", f"47ffee{number}", [averaged], facts=facts, arguments=arguments)
    write_registry(tmp_path / "mlflow.db", [version("demo", 1, {}), version("other", 1, {}), version("other", 2, {})])
    shown = lineage_text(find_lineage("demo/1", Site.named()))
    assert "versions that rest on it: demo/1\nversions whose training began with its weights: other/1\n" in shown
    assert find_lineage("other/2", Site.named()).as_json()["started_from_it"] == []


def test_a_finished_run(small: Path) -> None:
    site = Site.named()
    version = find_lineage("small@champion", site)
    assert version.start == find_lineage("small/register", site).start
    raw = find_lineage("train.en", site)
    assert raw.versions == version.versions == ["small/1 (champion, candidate)"]
    assert len(version.graph.ancestors(version.start)) == len(version.graph.nodes), "all of it is behind the version"
    artifact(LocalStore(small), "download", "d0ffee", item="other/train.en")
    found = find_lineage("train.en", site)
    assert len(found.start) == 2
    assert found.versions == raw.versions, "no version contains the other one"


def test_times_are_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed(LocalStore(tmp_path), "d0ffee", stage="download", made={"at": "2026-11-01T20:30:00+00:00"})
    try:
        with monkeypatch.context() as patch:
            patch.setenv("TZ", "XYZ-9")  # nine hours ahead of UTC
            time.tzset()
            assert "  2026-11-02 05:30" in lineage_text(find_lineage("d0ffee", Site(root=tmp_path)))
    finally:
        time.tzset()


def test_secrets_of_addresses_in_old_manifests_are_not_shown(tmp_path: Path) -> None:
    origin = "https://user:planted-SECRET-1@host/train.en.gz?X-Amz-Signature=planted-SECRET-2"
    old = sealed(LocalStore(tmp_path), "d0ffee", stage="download", facts={"origin": origin, "bytes": 1})
    assert "planted" in (old.path() / "manifest.json").read_text()
    found = find_lineage("d0ffee", Site(root=tmp_path))
    shown = json.dumps(found.as_json())
    assert "https://***@host/train.en.gz?X-Amz-Signature=***" in shown
    assert "planted" not in f"{shown}{lineage_text(found)}"
