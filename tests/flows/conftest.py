"""The small run, made once for all tests that start from a finished root."""

import shutil
from pathlib import Path

import pytest
from small_pipeline import ForkLauncher, run_small, small_run

from flows.runs import RUNS
from tasks.engine import jobs


def set_up(patch: pytest.MonkeyPatch, root: Path, mirror: Path) -> None:
    """Let this process run ``small`` in ``root``, with its jobs in forks."""
    import torch  # noqa: F401  loaded once, before forks

    patch.setenv("REPRO_ROOT", str(root))
    patch.setenv("REPRO_MIRRORS", str(mirror))
    patch.setenv("REPRO_THREADS", "1")
    patch.setitem(jobs.LAUNCHERS, "local", ForkLauncher)
    patch.setitem(RUNS, "small", small_run(mirror))


@pytest.fixture(scope="session")
def finished_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root in which the run ``small`` is finished, with its mirror beside it. Copy it before you change it."""
    base = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        set_up(patch, base / "root", base / "mirror")
        run_small()
    return base / "root"


@pytest.fixture
def small(finished_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the finished root, set as REPRO_ROOT."""
    root = tmp_path / "root"
    shutil.copytree(finished_root, root)
    shutil.rmtree(root / "stamps", ignore_errors=True)
    set_up(monkeypatch, root, finished_root.parent / "mirror")
    return root


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mirror with the files of the run ``small``; REPRO_ROOT is an empty folder."""
    set_up(monkeypatch, tmp_path / "repro", tmp_path / "mirror")
    return tmp_path / "mirror"
