"""Names that people type, lists of versions, aliases with their reasons, and whether a version still stands."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import registry
from infra.faults import BadConfiguration
from infra.mlflow_store import client
from infra.registry import Version, create_version, local_folder, resolve, set_alias, stands, versions
from infra.tracking import Tracker

SCORES = {"dev_set": "val", "dev_bleu": "34.5", "dev_signature": "tok:13a", "val.bleu": "34.5", "flickr.bleu": "33.25"}


class Registered:
    """Three versions of one model and one of another, the models themselves empty folders."""

    def __init__(self, root: Path) -> None:
        self.uri = f"sqlite:///{root}/mlflow.db"
        tracker = Tracker(self.uri, root / "mlflow-artifacts")
        tracker.start("models", "run", {}, {})
        self.run_id = tracker.run_id
        self.made = [self.make(tracker, name) for name in ("ende", "ende", "ende", "demo")]
        set_alias(self.uri, self.made[2], "candidate", "newest")
        set_alias(self.uri, self.made[1], "champion", "dev BLEU 34.50")

    def make(self, tracker: Tracker, name: str) -> Version:
        model = tracker.client.create_logged_model(tracker.experiment_id, name=name, source_run_id=self.run_id)
        return create_version(self.uri, name, model.model_id, self.run_id, SCORES, "what it is")


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Registered:
    return Registered(tmp_path_factory.mktemp("registry"))


def test_the_list_says_scores_protocol_and_aliases(registered: Registered) -> None:
    found = versions(registered.uri)
    assert [(v.name, v.version, v.aliases) for v in found] == [
        ("demo", 1, ()),
        ("ende", 3, ("candidate",)),
        ("ende", 2, ("champion",)),
        ("ende", 1, ()),
    ]
    assert [v.version for v in versions(registered.uri, "ende")] == [3, 2, 1]
    assert list(found[1].bleu.items()) == [("val", 34.5), ("flickr", 33.25)], "the dev set comes first"
    words = found[2].line().split("  ")
    assert [words[0], *words[2:]] == ["ende/2", "champion", "val (dev) 34.50", "flickr 33.25", "tok:13a"]
    assert found[2].tags["promotion.champion"].endswith("dev BLEU 34.50")


def test_the_list_costs_two_requests_however_long(registered: Registered, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return getattr(client(registered.uri), name)

    monkeypatch.setattr(registry, "client", lambda _: Counting())
    assert len(versions(registered.uri)) == 4
    assert sorted(asked) == ["search_model_versions", "search_registered_models"]


@pytest.mark.parametrize(
    ("words", "version"), [("ende@champion", 2), ("ende@candidate", 3), ("ende/1", 1), ("ende", 2), ("demo", 1)]
)
def test_words_mean_versions(registered: Registered, words: str, version: int) -> None:
    found = resolve(registered.uri, words)
    assert (found.name, found.version) == (words.partition("@")[0].partition("/")[0], version)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("endee@champion", "did you mean ende"),
        ("nothing like it", "there is: demo, ende"),
        ("it's", "there is: demo, ende"),
        ("ende@champoin", r"candidate \(version 3\), champion \(version 2\)"),
        ("demo@champion", "it has: none"),
        ("ende/4", "it has: 1, 2, 3"),
        ("ende/", "it has: 1, 2, 3"),
        ("", "there is: demo, ende"),
    ],
)
def test_wrong_words_name_their_neighbours(registered: Registered, words: str, said: str) -> None:
    with pytest.raises(BadConfiguration, match=said):
        resolve(registered.uri, words)


def test_a_moved_alias_stands_on_one_version(registered: Registered) -> None:
    set_alias(registered.uri, registered.made[0], "try", "first")
    set_alias(registered.uri, registered.made[2], "try", "second")
    assert [v.version for v in versions(registered.uri, "ende") if "try" in v.aliases] == [3]
    assert resolve(registered.uri, "ende/1").tags["promotion.try"].endswith("first"), "the old reason is kept"


def test_stands_only_the_same_version_of_the_same_run(registered: Registered, tmp_path: Path) -> None:
    assert stands(registered.uri, "ende", 2, registered.run_id)
    assert not stands(registered.uri, "ende", 2, "another run")
    assert not stands(registered.uri, "ende", 9, registered.run_id)
    assert not stands(f"sqlite:///{tmp_path}/none.db", "ende", 2, registered.run_id)
    (tmp_path / "broken.db").write_text("no database")
    assert not stands(f"sqlite:///{tmp_path}/broken.db", "ende", 2, registered.run_id)


def test_a_deleted_version_no_longer_stands(tmp_path_factory: pytest.TempPathFactory, registered: Registered) -> None:
    client(registered.uri).delete_model_version("demo", "1")
    assert not stands(registered.uri, "demo", 1, registered.run_id)
    tracker = Tracker(registered.uri, tmp_path_factory.mktemp("again"))
    tracker.start("models", "run", {}, {})
    registered.make(tracker, "demo")


def test_asking_whether_it_stands_needs_no_mlflow(registered: Registered) -> None:
    code = f"""
import sys
from infra.registry import stands
assert stands({registered.uri!r}, "ende", 2, {registered.run_id!r})
sys.exit("mlflow" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_server_that_is_away_cannot_say_a_version_is_gone() -> None:
    assert stands("http://127.0.0.1:9", "ende", 2, "run")


def test_no_store_no_versions(tmp_path: Path) -> None:
    assert versions(f"sqlite:///{tmp_path}/mlflow.db") == []
    assert not list(tmp_path.iterdir())
    with pytest.raises(BadConfiguration, match="none yet"):
        resolve(f"sqlite:///{tmp_path}/mlflow.db", "ende@champion")


def test_weights_that_were_removed_are_said_to_be(registered: Registered) -> None:
    with pytest.raises(BadConfiguration, match="ende/2 has no weights"):
        local_folder(registered.uri, resolve(registered.uri, "ende/2"))


@given(st.lists(st.integers(), max_size=20), st.integers(1, 5))
def test_pages_are_all_read(entries: list[int], size: int) -> None:
    class Page(list[int]):
        token = ""

    def page(token: str | None) -> Page:
        begin = int(token or 0)
        part = Page(entries[begin : begin + size])
        part.token = str(begin + size) if begin + size < len(entries) else ""
        return part

    assert registry._all(page) == entries


@given(st.permutations(["other", "candidate", "champion"]))
def test_champion_is_named_first(aliases: list[str]) -> None:
    entity = SimpleNamespace(name="a", version="1", creation_timestamp=0, tags={}, run_id=None, source=None)
    version = registry._version(entity, aliases)
    assert version.aliases == ("champion", "candidate", "other")
    assert version.created == datetime(1970, 1, 1, tzinfo=UTC)
