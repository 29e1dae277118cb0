"""Servers shared by all fault tests, and the artifacts of an undisturbed run to compare with."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from services import Services, artifact_digests, kill_tree, wait_for, wait_for_outcome
from small_pipeline import processes

EARLY = ("download", "prepare_sets", "clean", "learn_bpe", "shard")


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    made = Services(tmp_path_factory.mktemp("services"))
    try:
        made.start()
        yield made
    finally:
        made.end()


@pytest.fixture(scope="session")
def undisturbed(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root in which LONG was run without a fault, as far as its average."""
    root = tmp_path_factory.mktemp("undisturbed") / "root"
    wait_for_outcome(services.run(root, "LONG", "--until", "average"))
    return root


@pytest.fixture
def root(undisturbed: Path, tmp_path: Path) -> Path:
    """A root in which LONG is done up to its training."""
    for stage in EARLY:
        shutil.copytree(undisturbed / stage, tmp_path / "root" / stage)
    return tmp_path / "root"


@pytest.fixture(scope="session")
def two_ranks(services: Services, undisturbed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with two ranks, whose sums differ in the last bits."""
    root = tmp_path_factory.mktemp("two-ranks") / "root"
    for stage in EARLY:
        shutil.copytree(undisturbed / stage, root / stage)
    wait_for_outcome(services.run(root, "LONG", "--until", "average", REPRO_RANKS="2"))
    return root


@pytest.fixture
def nothing_left(request: pytest.FixtureRequest, services: Services, root: Path) -> Iterator[None]:
    """After the test: the same artifacts, no process, and nothing that a server shows as unfinished."""
    undisturbed: Path = request.getfixturevalue("two_ranks" if "two_ranks" in request.fixturenames else "undisturbed")
    yield
    made, expected = artifact_digests(root), artifact_digests(undisturbed)
    assert made == {key: expected[key] for key in made}
    assert {key.partition("/")[0] for key in made} >= {"train", "average"}
    wait_for(lambda: not processes(root))
    for server in (services.prefect, services.mlflow):
        assert server.answers()
    assert services.running() == {}


@pytest.fixture
def worker(services: Services) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of the pool ``cpu``; a test may kill it."""
    process = services.worker()
    yield process
    kill_tree(process.pid)
    process.wait()
