"""What all tests share: a world without the user's settings, and the real text where a mirror holds it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Two cores are shared by everything that runs at once; set before torch is loaded anywhere.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["DO_NOT_TRACK"] = "true"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
MIRRORS = os.environ.get("REPRO_MIRRORS", "")
# Servers of the developer's own are no place for tests; gone before any fixture, of whatever scope.
for _name in ("PREFECT_API_URL", "PREFECT_HOME", "PREFECT_PROFILE", "MLFLOW_TRACKING_URI", "REPRO_RANKS"):
    os.environ.pop(_name, None)


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
