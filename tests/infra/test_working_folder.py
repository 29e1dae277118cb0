"""A file such as model.py or random.py in the working folder never shadows the project's or Python's module."""

import os
from pathlib import Path

import pytest
from stand_ins import UVICORN

from infra.launch.job import JobSpec
from infra.launch.local import LocalLauncher
from infra.processes.children import PROJECT_ROOT
from infra.processes.workers import executor
from infra.servers.temporary_prefect import temporary_server

NAMES = ("flows", "infra", "model", "random", "socket", "tasks", "torch", "uvicorn")
JOB = """
import json, pathlib, random, socket, sys
import model.config
out = pathlib.Path(json.load(open(sys.argv[1]))["out"])
(out / "exit.json").write_text(json.dumps({"reason": "done"}))
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder holds modules that nobody can import; returns a folder on the children's search path."""
    working, path = tmp_path / "working", tmp_path / "path"
    for folder in (working, path):
        folder.mkdir()
    for name in NAMES:
        (working / f"{name}.py").write_text(f"raise SystemExit('the working folder has {name}.py')")
    monkeypatch.chdir(working)
    monkeypatch.setenv("PYTHONPATH", str(path))
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    return path


@pytest.mark.parametrize("distributed", [False, True], ids=["alone", "torchrun"])
def test_a_job_finds_the_projects_modules(path: Path, tmp_path: Path, distributed: bool) -> None:
    (path / "some_job.py").write_text(JOB)
    out = tmp_path / "out"
    out.mkdir()
    LocalLauncher().run(JobSpec("some_job", {}, {}, out, {}, distributed=distributed), bool)


@pytest.mark.usefixtures("path")
def test_worker_processes_find_the_projects_modules() -> None:
    with executor(2) as workers:
        assert list(workers.map(os.path.basename, [("a/b",), ("c/d",)])) == ["b", "d"]
    assert "PYTHONSAFEPATH" not in os.environ


def test_prefects_temporary_server_searches_the_project_folder(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path / "uvicorn.py").write_text(UVICORN)
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    with temporary_server(tmp_path / "home", print, print):
        seen = (tmp_path / "seen").read_text()
    # uvicorn searches this folder before all others; without the option it is the working folder.
    assert f'"--app-dir", "{PROJECT_ROOT}"' in seen
    assert str(Path.cwd()) not in seen
