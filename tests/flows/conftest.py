"""The small run, made once for all tests that start from a finished root."""

import os
import shutil
from pathlib import Path

import pytest
from small_pipeline import ForkLauncher, draw_a_dot, run_small, small_run

from flows.runs import RUNS
from infra.processes.locks import file_lock
from tasks.engine import jobs
from tasks.stages import report


def set_up(patch: pytest.MonkeyPatch, root: Path, mirror: Path) -> None:
    """Let this process run ``small`` in ``root``, with its jobs in forks and dots in place of its pictures."""
    import torch  # noqa: F401  loaded once, before forks

    patch.setenv("REPRO_ROOT", str(root))
    patch.setenv("REPRO_MIRRORS", str(mirror))
    patch.setenv("REPRO_THREADS", "1")
    patch.setitem(jobs.LAUNCHERS, "local", ForkLauncher)
    patch.setitem(RUNS, "small", small_run(mirror))
    patch.setattr(report, "draw", draw_a_dot)


@pytest.fixture(scope="session")
def finished_root() -> Path:
    """A root in which the run ``small`` is finished, with its mirror beside it. Copy it before you change it.

    The first worker of pytest-xdist that needs it makes it for all of them.
    """
    base = Path(os.environ["REPRO_TEST_TABLES"], "finished")
    complete = base / "complete"
    with file_lock(base.with_suffix(".lock"), lambda _: None):
        if not complete.exists():
            shutil.rmtree(base, ignore_errors=True)
            with pytest.MonkeyPatch.context() as patch:
                set_up(patch, base / "root", base / "mirror")
                run_small()
            complete.touch()
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
