"""Runs at once and killed runs: nothing is lost or half-published, and the next run completes."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from patience import limit
from small_pipeline import all_gone, run_small, start_small

from infra.store.local import LocalStore


def test_two_runs_at_once_share_every_stage(mirror: Path, tmp_path: Path) -> None:
    root = tmp_path / "shared"
    with (
        start_small(mirror, root, hold=True, until="shard") as first,
        start_small(mirror, root, hold=True, until="shard") as second,
    ):
        for process in (first, second):
            print(file=process.stdin, flush=True)
        outputs = [process.communicate(timeout=limit(60.0)) for process in (first, second)]
    rows = [json.loads(out) for out, _ in outputs]
    for (*stage, one_state), (*same_stage, other_state) in zip(*rows, strict=True):
        assert stage == same_stage
        assert sorted((one_state, other_state)) == ["cached", "completed"], stage


def killed_at(moment: str, mirror: Path, root: Path) -> None:
    """Kill a run as soon as there is what ``moment`` describes."""
    with start_small(mirror, root) as process:
        while not list(root.glob(moment)):
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.002)
    assert all_gone(root), "no process is left behind"


@pytest.mark.slow
def test_a_run_killed_while_it_cleans_completes_when_it_is_run_again(
    mirror: Path, finished_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "killed"
    killed_at("clean/*", mirror, root)
    monkeypatch.setenv("REPRO_ROOT", str(root))
    outcome = run_small()
    assert {row.state for row in outcome.rows} <= {"completed", "cached"}
    assert not list(root.glob("*/*.partial*"))
    row = next(row for row in outcome.rows if row.stage == "average")
    undisturbed, again = LocalStore(finished_root).find("average", row.key), LocalStore(root).find("average", row.key)
    assert undisturbed
    assert again
    assert again.content == undisturbed.content


def test_a_run_killed_while_it_registers_completes_when_it_is_run_again(small: Path) -> None:
    for name in ("register", "mlflow-artifacts"):
        shutil.rmtree(small / name)
    for file in small.glob("mlflow.db*"):
        file.unlink()
    killed_at("register/*", Path(os.environ["REPRO_MIRRORS"]), small)
    outcome = run_small()
    assert {row.stage for row in outcome.rows if row.state != "cached"} <= {"register"}
    assert outcome.model_version.startswith("small/")
    assert not list(small.glob("*/*.partial*"))
