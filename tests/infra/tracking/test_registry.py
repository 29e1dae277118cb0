"""The registry: lists of versions, names that resolve to one, aliases with their history, and deleted versions."""

import base64
import getpass
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from unittest.mock import MagicMock
from urllib.parse import parse_qs, urlsplit

import pytest

from infra.errors import BadConfiguration, NetworkFault
from infra.servers import mlflow_sqlite
from infra.tracking import model_files, model_logging, registry
from infra.tracking.model_files import local_address, stored_folder
from infra.tracking.model_version import DETAILS, Version, grouped_tags, history, make_version, ordered, scored_sets
from infra.tracking.registry import (
    create_version,
    delete_version,
    resolve,
    set_alias,
    source_run,
    version_exists,
    versions,
)
from infra.tracking.tracker import Tracker

SCORES = {"dev_set": "val", "dev_bleu": "34.5", "dev_signature": "tok:13a", "val.bleu": "34.5", "flickr.bleu": "33.25"}


class Registered:
    """Three versions of one model and one of another, without weights."""

    def __init__(self, root: Path) -> None:
        self.file = root / "mlflow.db"
        self.uri = f"sqlite:///{self.file}"
        tracker = Tracker(self.uri, root / "mlflow-artifacts")
        tracker.start("models", "run", {}, {})
        self.run_id, self.client = tracker.run_id, tracker.client
        self.versions = [self.make(name) for name in ("ende", "ende", "ende", "demo")]
        set_alias(self.uri, self.versions[2], "candidate", "newest")
        set_alias(self.uri, self.versions[1], "champion", "dev BLEU 34.50")

    def make(self, name: str, tags: Mapping[str, str] = SCORES) -> Version:
        experiment = self.client.get_run(self.run_id).info.experiment_id
        model = self.client.create_logged_model(experiment, name=name, source_run_id=self.run_id)
        return create_version(self.uri, name, model.model_id, self.run_id, tags)


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Registered:
    return Registered(tmp_path_factory.mktemp("registry"))


def test_the_list_shows_scores_protocol_and_aliases(registered: Registered) -> None:
    found = versions(registered.uri)
    assert [(v.name, v.version, v.aliases) for v in found] == [
        ("demo", 1, ()),
        ("ende", 3, ("candidate",)),
        ("ende", 2, ("champion",)),
        ("ende", 1, ()),
    ]
    assert [v.version for v in versions(registered.uri, "ende")] == [3, 2, 1]
    assert list(found[1].bleu.items()) == [("val", 34.5), ("flickr", 33.25)], "the dev set comes first"
    columns = found[2].line().split("  ")
    assert [columns[0], *columns[2:]] == ["ende/2", "champion", "val (dev) 34.50", "flickr 33.25", "tok:13a"]
    assert found[2].tags["promotion.champion"].endswith("dev BLEU 34.50")


def test_mlflow_holds_few_tags_and_both_readers_separate_them(
    registered: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoding = {"decoding.beam": "4", "decoding.alpha": "0.6", "decoding.numerics": "fast"}
    tags = SCORES | {f"key.{n}": f"{n}" for n in range(20)} | {"digest.clean": "d", "val.chrf": "5"} | decoding
    tags |= {"settings": "p_drop 0.2", "decision": "none"}
    registered.make("grouped", tags)
    stored = registered.client.get_model_version("grouped", "1").tags
    assert set(stored) == {"settings", "dev_bleu", DETAILS}
    source = registered.client.get_run(registered.run_id).data.tags
    assert (len(json.loads(source["keys"])), json.loads(source["digests"])) == (20, {"clean": "d"})
    assert resolve(registered.uri, "grouped/1").tags == tags
    assert resolve(registered.uri, "grouped/1").bleu == {"val": 34.5, "flickr": 33.25}
    monkeypatch.setattr(mlflow_sqlite, "SCHEMA_REVISION", "another")
    assert resolve(registered.uri, "grouped/1").tags == tags
    assert make_version("before", 1, 0, "", "", grouped_tags(tags), ()).tags == tags
    before = {**SCORES, "decoding": '{"beam": 4, "alpha": 0.6, "numerics": "fast"}'}
    assert make_version("before", 1, 0, "", "", before, ()).tags == {**SCORES, **decoding}
    assert make_version("foreign", 1, 0, "", "", {**tags, "scores": "mine"}, ()).tags == {**tags, "scores": "mine"}
    registered.client.delete_registered_model("grouped")


def test_the_tags_of_hundreds_of_sets_are_several_that_mlflow_takes(registered: Registered) -> None:
    scores = {f"set-{number}.protocols": "words " * 200 for number in range(100)}
    registered.make("large", SCORES | scores)
    stored = registered.client.get_model_version("large", "1").tags
    assert {DETAILS, f"{DETAILS}.1"} <= stored.keys()
    assert resolve(registered.uri, "large/1").tags == SCORES | scores
    registered.client.delete_registered_model("large")


@pytest.mark.parametrize("address", ["http://evil.example\\@mlflow.example/m", "mlflow-artifacts://evil.example/m"])
def test_a_model_elsewhere_does_not_get_the_password_of_the_server(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "secret")
    with pytest.raises(BadConfiguration, match="the model is at .*, which would get the password"):
        model_files._download("https://mlflow.example", address, tmp_path / "model")


def test_sql_reads_what_the_client_reads(registered: Registered, monkeypatch: pytest.MonkeyPatch) -> None:
    def listed() -> list[list[Version]]:
        return [versions(registered.uri), versions(registered.uri, "ende")]

    with monkeypatch.context() as without_client:
        without_client.setattr(registry, "mlflow_client", lambda _: pytest.fail("MLflow was opened"))
        by_sql = listed()
    monkeypatch.setattr(mlflow_sqlite, "SCHEMA_REVISION", "another")
    assert mlflow_sqlite.version_rows(registered.file) is None
    assert listed() == by_sql


def test_files_that_a_server_stored_are_found_without_it(
    registered: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = registered.file.parent / "mlflow-artifacts" / "1" / "models" / "m-1" / "artifacts"
    folder.mkdir(parents=True)
    monkeypatch.setattr(mlflow_sqlite, "_query", lambda *_: [("mlflow-artifacts:/1/models/m-1/artifacts",)])
    monkeypatch.chdir(registered.file.parent)
    for uri in (registered.uri, "sqlite:///mlflow.db"):
        assert stored_folder(uri, registered.versions[0]) == local_address(uri, "ende", 1) == folder


@pytest.mark.parametrize("name", ["endee@champion", "ende@champoin", "demo@champion", "ende/4", ""])
def test_a_wrong_name_is_refused(registered: Registered, name: str) -> None:
    with pytest.raises(BadConfiguration):
        resolve(registered.uri, name)


@pytest.mark.parametrize(
    ("name", "version"), [("ende@champion", 2), ("ende@candidate", 3), ("ende/1", 1), ("ende", 2), ("demo", 1)]
)
def test_a_name_resolves_to_a_version(registered: Registered, name: str, version: int) -> None:
    found = resolve(registered.uri, name)
    assert (found.name, found.version) == (name.partition("@")[0].partition("/")[0], version)


def test_every_move_of_an_alias_is_kept(registered: Registered) -> None:
    first, last = registered.versions[0], registered.versions[2]
    for version, why in ((first, "tried"), (last, "better\nby far"), (first, "the better one was wrong")):
        set_alias(registered.uri, version, "moving", why)
    moves = [move for move in history(versions(registered.uri, "ende")) if move.alias == "moving"]
    assert [v.version for v in versions(registered.uri, "ende") if "moving" in v.aliases] == [1]
    reasons = {(move.version, move.why.partition(": ")[2]) for move in moves}
    assert reasons == {(1, "tried"), (3, "better by far"), (1, "the better one was wrong")}
    assert all(move.why.startswith(f"{getpass.getuser()}: ") for move in moves)
    assert [move.when for move in moves] == sorted((move.when for move in moves), reverse=True)


@pytest.mark.parametrize("alias", ["", "latest", "v3", "V3", "two words", "a/b"])
def test_an_invalid_alias_is_refused(registered: Registered, alias: str) -> None:
    with pytest.raises(BadConfiguration, match="alias is"):
        set_alias(registered.uri, registered.versions[0], alias, "why")


def scored(number: int, **bleu: float) -> Version:
    tags = {"dev_set": "val", **{f"{name}.bleu": f"{value}" for name, value in bleu.items()}}
    return Version("ende", number, datetime.fromtimestamp(number, UTC), (), tags, "", "")


def test_versions_are_ordered_by_score_or_age() -> None:
    listed = [scored(1, val=30.0, test=20.0), scored(2, val=31.0), scored(3, val=29.0, test=25.0)]
    assert [v.version for v in ordered(listed, "newest")] == [3, 2, 1]
    assert [v.version for v in ordered(listed, "dev")] == [2, 1, 3]
    assert [v.version for v in ordered(listed, "test")] == [3, 1, 2]


def test_only_the_same_version_of_the_same_run_exists(registered: Registered, tmp_path: Path) -> None:
    assert version_exists(registered.uri, "ende", 2, registered.run_id)
    assert not version_exists(registered.uri, "ende", 2, "another run")
    assert not version_exists(registered.uri, "ende", 9, registered.run_id)
    assert source_run(registered.uri, replace(registered.versions[0], run_id="none")) == {}
    store = registered.client
    store.create_registered_model("deleted")
    store.create_model_version("deleted", "/somewhere", run_id=registered.run_id)
    assert version_exists(registered.uri, "deleted", 1, registered.run_id)
    store.delete_model_version("deleted", "1")
    assert not version_exists(registered.uri, "deleted", 1, registered.run_id)
    store.delete_registered_model("deleted")
    assert not version_exists(f"sqlite:///{tmp_path}/none.db", "ende", 2, registered.run_id)
    (tmp_path / "broken.db").write_text("no database")
    assert not version_exists(f"sqlite:///{tmp_path}/broken.db", "ende", 2, registered.run_id)


def test_an_unreachable_server_does_not_make_a_version_missing() -> None:
    assert version_exists("http://127.0.0.1:9", "ende", 2, "run")


def test_an_mlflow_that_does_not_answer_is_a_network_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(NetworkFault, match="does not list its versions"):
        versions("http://127.0.0.1:9")
    store = MagicMock()
    store.finalize_logged_model.side_effect = ConnectionError("refused")
    monkeypatch.setattr(model_logging, "mlflow_client", lambda _: store)
    for name in ("fail_pending_models", "_save", "_attach"):
        monkeypatch.setattr(model_logging, name, lambda *_: None)
    with pytest.raises(NetworkFault, match="refuses the model"):
        model_logging.log_model("http://127.0.0.1:9", "run", "ende", MagicMock(), {})


class Protected(BaseHTTPRequestHandler):
    """MLflow behind a password; its only version is 2 of "ende"."""

    def do_GET(self) -> None:
        known = self.headers["Authorization"] == "Basic " + base64.b64encode(b"anna:twelve letters").decode()
        there = parse_qs(urlsplit(self.path).query) == {"name": ["ende"], "version": ["2"]}
        self.send_response(401 if not known else 200 if there else 404)
        self.end_headers()
        if known:
            missing = {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no"}
            found = {"model_version": {"name": "ende", "version": "2", "run_id": "run"}}
            self.wfile.write(json.dumps(found if there else missing).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def protected() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Protected) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_requests_to_a_protected_server_carry_credentials(protected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(variable, "")  # restored afterwards
        monkeypatch.delenv(variable)
    monkeypatch.setenv("REPRO_AUTH", "anna:twelve letters")
    with monkeypatch.context() as without:
        without.setattr(registry, "mlflow_client", lambda _: pytest.fail("MLflow was opened"))
        assert version_exists(protected, "ende", 2, "run")
        assert not version_exists(protected, "ende", 2, "another run")
        assert not version_exists(protected, "ende", 3, "run"), "it was deleted"


def test_a_refused_request_does_not_make_a_version_missing(protected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.servers.credentials.mlflow_header", dict)
    assert version_exists(protected, "ende", 3, "run")


def test_a_score_that_is_no_number_is_left_out() -> None:
    tags = {"val.bleu": "34.5", "dev_set": "val", "a.bleu": "good", "b.bleu": "nan", "c.bleu": "inf"}
    found = make_version("ende", 1, 0, "", "", tags, ())
    assert dict(found.bleu) == {"val": 34.5}
    assert scored_sets(tags) == ["val"]
    assert "val (dev) 34.50" in found.line()


def test_a_deleted_version_takes_no_alias_from_another(registered: Registered) -> None:
    for _ in range(2):
        registered.make("moved")
    set_alias(registered.uri, resolve(registered.uri, "moved/1"), "champion", "the first")
    first = resolve(registered.uri, "moved/1")
    set_alias(registered.uri, resolve(registered.uri, "moved/2"), "champion", "better")
    delete_version(registered.uri, first)
    assert resolve(registered.uri, "moved@champion").version == 2
    registered.client.delete_registered_model("moved")
