"""What all tests share: a world without the user's settings, and the real text where a mirror holds it."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

try:
    from hypothesis import settings
except ImportError:  # a GPU node
    pass
else:  # No limit of time for an example: the first one may import a library, and the machine may be busy.
    settings.register_profile("any machine", settings.default, deadline=None)
    settings.load_profile("any machine")
if TYPE_CHECKING:  # a GPU node has neither an S3 client nor a browser
    from ceph_cluster import Cluster
    from playwright.sync_api import Browser
    from s3_server import Server

# Two cores are shared by everything that runs at once; set before torch is loaded anywhere.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["DO_NOT_TRACK"] = "true"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
CHROMIUM = Path("/usr/bin/chromium")
MIRRORS = os.environ.get("REPRO_MIRRORS", "")
SLOW_SECONDS = 3600
_SERVICE = ("REPRO_AUTH", "REPRO_AUTH_FILE", "REPRO_DATABASE_URL")
# Servers of the developer's own are no place for tests; gone before any fixture, of whatever scope.
for _name in ("PREFECT_API_URL", "PREFECT_HOME", "PREFECT_PROFILE", "MLFLOW_TRACKING_URI", "REPRO_RANKS", *_SERVICE):
    os.environ.pop(_name, None)
TABLES = "REPRO_TEST_TABLES"
"""The folder of this session with what is made once: the databases of ``ready_tables``, and a finished root."""
_IS_OWNER = TABLES not in os.environ  # otherwise a worker of pytest-xdist
if _IS_OWNER:
    os.environ[TABLES] = tempfile.mkdtemp(prefix="repro-test-tables-")
    _paths = [f"{Path(__file__).parent / 'support' / 'ready_tables'}", os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _paths))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--s3", choices=("moto", "radosgw"), default="moto", help="the server that holds tests' buckets")


def pytest_unconfigure() -> None:
    if _IS_OWNER:
        shutil.rmtree(os.environ[TABLES], ignore_errors=True)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``-m gpu`` import only files with such tests: a GPU node has neither polars, Prefect nor MLflow."""
    if config.option.markexpr != "gpu":
        return None
    files = collection_path.rglob("test_*.py") if collection_path.is_dir() else [collection_path]
    return None if any("pytest.mark.gpu" in file.read_text() for file in files) else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give slow tests time on a busy machine too; one that hangs still ends."""
    for item in items:
        timed = item.config.pluginmanager.hasplugin("timeout")  # not on a GPU node
        if timed and item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS))


@pytest.fixture(scope="module", autouse=True)
def _nothing_stays() -> Iterator[None]:
    """Commands called in this process set variables for their own; the next module's are not to find them."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(autouse=True)
def _own_world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI", "REPRO_MIRRORS", "REPRO_RANKS", "REPRO_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("REPRO_ROOT", str(tmp_path / "repro"))


@pytest.fixture
def real_text(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the real corpora; the test is skipped, loudly, where REPRO_MIRRORS names none."""
    for place in MIRRORS.split():
        if (Path(place) / "multi30k" / "train.en.gz").is_file():
            monkeypatch.setenv("REPRO_MIRRORS", MIRRORS)
            return Path(place)
    pytest.skip("NOT RUN: real text is missing; set REPRO_MIRRORS to a folder that holds multi30k/train.en.gz")


@pytest.fixture(scope="session")
def radosgw() -> Iterator["Cluster"]:
    """Ceph's S3 server. Tests that ask for it are slow."""
    from ceph_cluster import Cluster

    cluster = Cluster()
    yield cluster
    cluster.end()


@pytest.fixture(scope="session")
def s3_process(request: pytest.FixtureRequest) -> Iterator["Server"]:
    """The server of ``--s3``, with faults that a test switches on."""
    from s3_server import Server

    behind = request.getfixturevalue("radosgw").address if request.config.getoption("s3") == "radosgw" else ""
    server = Server(behind)
    yield server
    server.end()


@pytest.fixture
def s3(s3_process: "Server", monkeypatch: pytest.MonkeyPatch) -> "Server":
    """An S3-compatible server as the environment names it, with an empty ``bucket``."""
    for name, value in s3_process.environment.items():
        monkeypatch.setenv(name, value)
    s3_process.inject_faults()
    s3_process.bucket = f"test-{uuid.uuid4().hex[:12]}"
    s3_process.client.create_bucket(Bucket=s3_process.bucket)
    return s3_process


@pytest.fixture(scope="module")  # while it is open, no other event loop runs in this thread
def browser() -> Iterator["Browser"]:
    """A real browser. The test is skipped, loudly, where there is none."""
    from playwright.sync_api import sync_playwright

    if not CHROMIUM.exists():
        pytest.skip(f"NOT RUN: no browser at {CHROMIUM}; apt-get install chromium")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()
