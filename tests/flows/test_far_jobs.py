"""The small run with all jobs behind a real sshd and on a real SLURM: the same artifacts, stopped, resumed."""

import json
import os
import pwd
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from patience import wait_for
from slurm_cluster import Cluster
from small_pipeline import run_small, start_small
from ssh_server import SshServer

from flows.commands.doctor import doctor
from flows.commands.stop import stop
from flows.runner.request import RunRequest
from infra.errors import BadConfiguration
from infra.store.local import LocalStore
from tasks.training.going_on import newest_checkpoint

STAGES = ("train", "average", "translate")
ENDLESS = ("training.updates=200000", "training.checkpoint_every=100000", "training.dev_every=100000")


@dataclass(frozen=True)
class Place:
    """Where jobs run."""

    variables: Mapping[str, str]
    """That send a run's jobs there."""
    left: Callable[[], Sequence[object]]
    """What is still there of jobs."""
    says: str
    """By ``repro doctor``, which asks ssh alone."""


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    server = SshServer()
    far = tmp_path_factory.mktemp("far")
    below_home = os.path.relpath(far, pwd.getpwuid(os.getuid()).pw_dir)
    settings = {"HOST": "box", "FOLDER": below_home, "PYTHON": sys.executable, "OPTIONS": shlex.join(server.options)}
    variables = {f"REPRO_SSH_{name}": value for name, value in settings.items()}

    def left() -> list[psutil.Process]:
        return [
            each for each in psutil.process_iter(["cmdline"]) if f"{far}/jobs" in " ".join(each.info["cmdline"] or ())
        ]

    yield Place({**variables, "REPRO_LAUNCHER": "ssh"}, left, "ok       ssh         box: torch ")
    server.end()


@pytest.fixture(scope="module")
def slurm() -> Iterator[Place]:
    cluster = Cluster()
    variables = {"SLURM_CONF": f"{cluster.conf}", "REPRO_LAUNCHER": "slurm"}
    yield Place(variables, cluster.queued, "")
    cluster.end()


@pytest.fixture(params=["ssh", "slurm"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    found: Place = request.getfixturevalue(request.param)
    for name, value in found.variables.items():
        monkeypatch.setenv(name, value)
    return found


def contents(root: Path) -> dict[str, str]:
    return {f"{made.stage}/{made.key}": made.content for made in LocalStore(root).list() if made.stage in STAGES}


@pytest.mark.slow
def test_the_small_run_there_is_the_small_run(place: Place, small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(small)
    doctor()
    assert place.says in capsys.readouterr().out
    there = run_small(RunRequest("small", force=STAGES, until="translate"))
    assert {row.stage for row in there.rows if row.state == "completed"} == set(STAGES)
    assert contents(small) == before
    assert not place.left()
    said = capsys.readouterr().err
    assert f"jobs run by {place.variables['REPRO_LAUNCHER']}" in said
    assert said.count("was submitted as ") == 2 + len([row for row in there.rows if row.stage == "translate"])


@pytest.mark.slow
def test_stop_ends_a_training_there_which_the_next_start_resumes(
    place: Place, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the launcher, and after somebody killed that."""
    rows: list[dict[str, float]] = []
    saved = [0]
    for is_killed, says in ((False, "is interrupted"), (True, " is gone; train writes")):
        with start_small(Path(os.environ["REPRO_MIRRORS"]), small, until="train", overrides=ENDLESS) as start:
            metrics = wait_for(lambda: [*small.glob("train/*.partial-*/metrics.jsonl")])[0]
            known = len(rows)
            wait_for(lambda: len(metrics.read_text().splitlines()) > known + 20)  # noqa: B023
            if is_killed:
                start.kill()
                start.wait()
            stop("small")
            out, said = capsys.readouterr()
            assert out.startswith("stopped small: ")
            assert says in said
            assert not place.left()
            assert start.wait() == (-signal.SIGKILL if is_killed else 128 + signal.SIGTERM)
        assert json.loads((metrics.parent / "exit.json").read_text())["reason"] == "preempted"
        saved.append(newest_checkpoint(metrics.parent))
        rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert 0 < saved[1] < saved[2]
    done = [row["done"] for row in rows if "loss" in row]
    assert done == sorted({*done}), "restarted from an earlier update"


def test_a_launcher_whose_program_is_missing_is_one_sentence(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_LAUNCHER", "slurm")
    monkeypatch.setenv("PATH", f"{small}")
    with pytest.raises(BadConfiguration, match="'sbatch'"):
        run_small(RunRequest("small", force=("train",)))
