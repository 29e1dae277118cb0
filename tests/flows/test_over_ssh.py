"""The small run with all jobs on a machine behind ssh gives the same artifacts."""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_pipeline import run_small
from ssh_server import SshServer

from flows.commands.doctor import doctor
from flows.runner.request import RunRequest
from infra.store.local import LocalStore

STAGES = ("train", "average", "translate")


@pytest.fixture(scope="module")
def server() -> Iterator[SshServer]:
    found = SshServer()
    yield found
    found.end()


def contents(root: Path) -> dict[str, str]:
    return {f"{made.stage}/{made.key}": made.content for made in LocalStore(root).list() if made.stage in STAGES}


@pytest.mark.slow
def test_the_small_run_over_ssh_is_the_small_run(
    server: SshServer,
    small: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = contents(small)
    settings = {"HOST": "box", "FOLDER": f"{tmp_path}/far", "PYTHON": sys.executable}
    for name, value in {**settings, "OPTIONS": shlex.join(server.options)}.items():
        monkeypatch.setenv(f"REPRO_SSH_{name}", value)
    monkeypatch.setenv("REPRO_LAUNCHER", "ssh")
    doctor()
    assert "ok       ssh         box: torch " in capsys.readouterr().out
    there = run_small(RunRequest("small", force=STAGES, until="translate"))
    assert {row.stage for row in there.rows if row.state == "completed"} == set(STAGES)
    assert contents(small) == before
    assert [*(tmp_path / "far/jobs").iterdir()] == []
