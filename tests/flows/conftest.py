"""The small run, made once for all tests that start from a finished root."""

import shutil
from pathlib import Path

import pytest
from small_pipeline import ForkLauncher, run_small, small_run

from flows.runs import RUNS
from tasks.engine import jobs


@pytest.fixture(scope="session")
def finished_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root in which the run ``small`` is finished, with its mirror beside it. Copy it before you change it."""
    import torch  # noqa: F401  loaded once, before forks

    base = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPRO_ROOT", str(base / "root"))
        patch.setenv("REPRO_MIRRORS", str(base / "mirror"))
        patch.setenv("REPRO_THREADS", "1")
        patch.setitem(jobs.LAUNCHERS, "local", ForkLauncher)
        patch.setitem(RUNS, "small", small_run(base / "mirror"))
        run_small()
    return base / "root"


@pytest.fixture
def small(finished_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the finished root, set as REPRO_ROOT."""
    root = tmp_path / "root"
    shutil.copytree(finished_root, root)
    shutil.rmtree(root / "stamps", ignore_errors=True)
    monkeypatch.setenv("REPRO_ROOT", str(root))
    monkeypatch.setenv("REPRO_MIRRORS", str(finished_root.parent / "mirror"))
    monkeypatch.setenv("REPRO_THREADS", "1")
    monkeypatch.setitem(jobs.LAUNCHERS, "local", ForkLauncher)
    monkeypatch.setitem(RUNS, "small", small_run(finished_root.parent / "mirror"))
    return root
