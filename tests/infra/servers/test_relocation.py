"""After a root is moved or copied, to a folder of any name, its models are found and nothing else changes."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from infra.processes.identity import process_identity
from infra.servers.environment import prefect_database
from infra.servers.relocation import COLUMNS, relocate
from infra.servers.service_settings import Service, read, running_service
from infra.servers.sqlite_addresses import needs_quoting, sqlite_file, sqlite_uri
from infra.tracking.client import with_sqlite_timeout
from infra.tracking.mlflow_runs import RunFile
from infra.tracking.model_files import local_folder
from infra.tracking.registry import create_version, resolve
from infra.tracking.tracker import Tracker

ODD = "it's 50% a?b #1 %41"
KEY = "5f3c2a"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with a model version and an interrupted training."""
    root = tmp_path_factory.mktemp("original")
    tracker = Tracker("", root / "mlflow-artifacts")
    tracker.start("models", "run", {}, {})
    tracker.start_stage("train", "", KEY, {})
    made = tracker.client.create_logged_model(tracker._runs.experiment_id, name="ende", source_run_id=tracker.run_id)
    weights = root / "weights" / "artifacts" / "weights"
    weights.mkdir(parents=True)
    (weights / "model.safetensors").write_text("weights")
    tracker.client.log_model_artifacts(made.model_id, f"{root}/weights")
    tracker.client.finalize_logged_model(made.model_id, "READY")
    create_version(tracker.uri, "ende", made.model_id, tracker.run_id, {})
    return root


@pytest.fixture
def copy(request: pytest.FixtureRequest, original: Path, tmp_path: Path) -> Path:
    """A copy in a folder of an odd name, or of the one that a test gives."""
    return Path(shutil.copytree(original, tmp_path / getattr(request, "param", ODD) / "root"))


both_names = pytest.mark.parametrize("copy", ["plain", ODD], indirect=True)


def files(root: Path) -> dict[str, bytes]:
    return {f"{path.relative_to(root)}": path.read_bytes() for path in root.rglob("*") if path.is_file()}


def stored(root: Path) -> set[str]:
    """Every address in the database, and the location of every training."""
    with closing(sqlite3.connect(root / "mlflow.db")) as database:
        found = {row[0] for table, column in COLUMNS for row in database.execute(f"SELECT {column} FROM {table}")}
        return found | {row[0] for row in database.execute("SELECT value FROM tags WHERE key = 'place'")}


def use(root: Path) -> None:
    """Find the model below ``root``, and write an artifact of a new run there."""
    uri = sqlite_uri(root / "mlflow.db")
    assert local_folder(uri, resolve(uri, "ende")).is_relative_to(root)
    tracker = Tracker(uri, root / "mlflow-artifacts")
    tracker.start("models", "another", {}, {})
    tracker.log_files(tracker.run_id, lambda: [RunFile("note.txt", b"new")])
    assert list((root / "mlflow-artifacts" / "models" / tracker.run_id).rglob("note.txt"))


@both_names
def test_a_copy_does_not_use_its_original(original: Path, copy: Path) -> None:
    before, siblings = files(original), sorted(copy.parent.parent.iterdir())
    relocate(copy)
    use(copy)
    assert files(original) == before
    assert not [address for address in stored(copy) if address and f"{original}" in address]
    assert sorted(copy.parent.parent.iterdir()) == siblings
    assert list(copy.parent.iterdir()) == [copy], "no database beside the root"


def test_a_moved_root_moves_again(copy: Path, tmp_path: Path) -> None:
    relocate(copy)
    for name in (f"{ODD} again", "back"):
        copy = copy.rename(tmp_path / name)
        relocate(copy)
        use(copy)


def test_an_interrupted_training_resumes_after_a_move(copy: Path) -> None:
    relocate(copy)
    tracker = Tracker("", copy / "mlflow-artifacts")
    tracker.start("models", "again", {}, {})
    resumed = tracker.start_stage("train", "", KEY, {})
    assert len(tracker.client.search_runs([tracker._runs.experiment_id], f"tags.stage_key = '{KEY}'")) == 1
    assert tracker.client.get_run(resumed).data.tags["mlflow.parentRunId"] == tracker.run_id


@both_names
def test_a_root_that_did_not_move_is_not_written(original: Path, copy: Path, tmp_path: Path) -> None:
    relocate(copy)
    before = files(copy)
    relocate(copy)
    (tmp_path / "link").symlink_to(copy)
    relocate(tmp_path / "link")
    relocate(original)
    assert files(copy) == before


def test_addresses_outside_the_root_are_unchanged(copy: Path, original: Path, tmp_path: Path) -> None:
    """Addresses in a bucket, at a server, in another folder, and in one whose name begins like the root's."""
    others = {"s3://bucket/mlflow-artifacts/1", "mlflow-artifacts:/1", (tmp_path / "elsewhere").as_uri()}
    others.add(f"{original.as_uri()}-2/other/1")
    with closing(sqlite3.connect(copy / "mlflow.db")) as database:
        for number, address in enumerate(sorted(others)):
            database.execute(
                "INSERT INTO experiments (name, artifact_location, workspace) VALUES (?, ?, 'default')",
                (f"{number}", address),
            )
        database.commit()
    relocate(copy)
    assert others <= stored(copy)


def test_experiments_of_another_root_that_shares_the_database_are_unchanged(copy: Path, tmp_path: Path) -> None:
    relocate(copy)
    other = tmp_path / "other"
    tracker = Tracker(sqlite_uri(copy / "mlflow.db"), other / "mlflow-artifacts")
    tracker.start("theirs", "run", {}, {})
    tracker.log_files(tracker.run_id, lambda: [RunFile("note.txt", b"theirs")])
    before = stored(copy)
    assert any(f"{other.as_uri()}/" in address for address in before if address)
    relocate(copy)
    assert stored(copy) == before


def test_a_database_of_another_mlflow_version_is_unchanged(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(copy / "mlflow.db")) as database:
        database.execute("UPDATE alembic_version SET version_num = 'later'")
        database.commit()
    before = files(copy)
    relocate(copy)
    assert files(copy) == before
    assert "is not of MLflow 3.17" in capsys.readouterr().err


def test_a_file_that_is_not_a_database_is_unchanged(tmp_path: Path) -> None:
    relocate(tmp_path)
    assert not list(tmp_path.iterdir())
    (tmp_path / "mlflow.db").write_text("no database")
    relocate(tmp_path)
    assert (tmp_path / "mlflow.db").read_text() == "no database"


def test_mlflow_and_prefect_open_the_file_of_an_address(tmp_path: Path) -> None:
    from sqlalchemy import create_engine

    root = tmp_path / ODD
    root.mkdir()
    uri = sqlite_uri(root / "mlflow.db")
    assert sqlite_file(uri) == sqlite_file(with_sqlite_timeout(uri)) == root / "mlflow.db"
    with create_engine(with_sqlite_timeout(uri)).connect() as connection:
        connection.exec_driver_sql("CREATE TABLE here (id)")
    assert [path.name for path in root.iterdir()] == ["mlflow.db"]
    (address,) = prefect_database(root).values()
    with create_engine(address.replace("+aiosqlite", "")).connect() as connection:
        connection.exec_driver_sql("CREATE TABLE here (id)")
    assert {path.name for path in root.iterdir()} == {"mlflow.db", "prefect.db"}
    assert not prefect_database(tmp_path)
    assert not needs_quoting(f"{tmp_path}/it's #1")


@pytest.fixture
def service(tmp_path: Path) -> Path:
    """A root whose files describe a running service."""
    root = tmp_path / "root"
    service = Service(root, supervisor=process_identity())
    service.folder.mkdir(parents=True)
    service.write()
    return root


def test_a_copy_does_not_use_the_service_of_its_original(service: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(service, tmp_path / "copied"))
    (tmp_path / "link").symlink_to(service)
    assert running_service(service)
    assert running_service(tmp_path / "link")
    assert not running_service(copied)
    assert read(tmp_path / "link" / "service").place == service
    with pytest.raises(FileNotFoundError, match="is a copy"):
        read(copied / "service")
