"""The small run with all jobs submitted to SLURM gives the same artifacts."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from slurm_cluster import Cluster
from small_pipeline import run_small

from flows.runner.request import RunRequest
from infra.errors import BadConfiguration
from infra.store.local import LocalStore


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    found = Cluster()
    yield found
    found.end()


def contents(root: Path, stages: Sequence[str]) -> dict[str, str]:
    """Digest of every artifact of these stages."""
    return {f"{made.stage}/{made.key}": made.content for made in LocalStore(root).list() if made.stage in stages}


@pytest.mark.slow
def test_the_small_run_by_slurm_is_the_small_run(
    cluster: Cluster, small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = ("train", "average", "translate")
    before = contents(small, stages)
    monkeypatch.setenv("SLURM_CONF", f"{cluster.conf}")
    monkeypatch.setenv("REPRO_LAUNCHER", "slurm")
    there = run_small(RunRequest("small", force=stages, until="translate"))
    assert {row.stage for row in there.rows if row.state == "completed"} == set(stages)
    assert contents(small, stages) == before
    assert cluster.queued() == []
    said = capsys.readouterr().err
    assert "jobs run by slurm, 1 ranks on 1 node" in said
    assert said.count("was submitted as SLURM job") == 2 + len([row for row in there.rows if row.stage == "translate"])


def test_a_launcher_whose_program_is_missing_is_one_sentence(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_LAUNCHER", "slurm")
    monkeypatch.setenv("PATH", f"{small}")
    with pytest.raises(BadConfiguration, match="'sbatch'"):
        run_small(RunRequest("small", force=("train",)))
