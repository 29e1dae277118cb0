"""A run whose root is a bucket: every machine finds its artifacts, and downloads only what it needs."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import psutil
import pytest
from s3_server import Server
from small_pipeline import ForkLauncher, run_small
from toy_stages import Untracked

from flows.inspection.compare import find_system
from flows.runner.outcome import StageFailed, cached_outcome, stage_folder
from flows.runner.request import RunRequest, plan
from infra.launch.job import JobSpec
from infra.site import Site, open_store
from infra.store import checkpoint_sync
from infra.store.s3 import S3Store
from tasks.engine import jobs
from tasks.stages.train import newest_checkpoint


@pytest.fixture
def go_to(s3: Server, mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Switches between machines that share the bucket and MLflow; each has its own cache."""
    monkeypatch.setenv("REPRO_ROOT", f"s3://{s3.bucket}/prefix")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")

    def go_to(name: str) -> None:
        monkeypatch.setenv("REPRO_CACHE", str(tmp_path / name))

    go_to("first")
    return go_to


def copies() -> set[str]:
    return {path.parts[-3] for path in Site.named().root.glob("*/*/manifest.json")}


def test_a_second_machine_finds_a_finished_run(go_to: Callable[[str], None]) -> None:
    few = RunRequest("small", overrides=("training.checkpoint_every=10", "training.updates=20"))
    first = run_small(few)
    assert first.model_version == "small/1"
    assert cached_outcome(plan(few))
    go_to("second")
    there = plan(few)
    assert cached_outcome(there), "every stage is a hit"
    assert [row.key for row in there.rows] == [row.key for row in first.rows]
    assert copies() <= {"register"}, "planning downloads only which version was registered"
    assert {row.state for row in run_small(few).rows} == {"cached"}
    assert copies() <= {"register"}
    again = run_small(replace(few, overrides=(*few.overrides, "decoding.beam=1"), until="score"))
    assert {row.stage for row in again.rows if row.state == "completed"} == {"translate", "score"}
    assert "download" not in copies(), "archives are not downloaded"
    card = stage_folder(next(row for row in there.rows if row.stage == "score"), Site.named()) / "card.json"
    assert card.is_file()
    assert find_system("small", Site.named()).scores


def test_what_a_full_bucket_did_not_take_is_sent_by_the_next_run(
    go_to: Callable[[str], None], s3: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends: list[object] = []

    class Listening(Untracked):
        def finish_stage(self, run_id: str, status: str, facts: object) -> None:
            ends.append(status)

    monkeypatch.setattr("flows.runner.run.Tracker", Listening)
    downloads = RunRequest("small", until="download")
    s3.inject_faults(status=403, code="QuotaExceeded", times=99, match="manifest.json")
    with pytest.raises(StageFailed, match="raise its quota"):
        run_small(downloads)
    assert set(ends) == {"FINISHED"}, "they are made, but not sent"
    s3.inject_faults()
    assert run_small(downloads).rows[0].state == "cached"
    assert "is on this machine only: sent" in capsys.readouterr().err


class LosingLauncher(ForkLauncher):
    """Trains until a checkpoint has reached the bucket; then the machine is gone."""

    def run(self, job: JobSpec, on_poll: Callable[[], None]) -> None:
        store = open_store(Site.named())
        assert isinstance(store, S3Store)

        def poll() -> None:
            on_poll()
            if list(job.out.glob("checkpoints/0*[0-9]")):
                own = psutil.Process()
                [child] = [child for child in own.children() if child.cmdline() == own.cmdline()]
                child.suspend()
                while "checkpoints/0" not in indices(store):
                    on_poll()
                    time.sleep(0.01)
                child.kill()
                os.waitpid(child.pid, 0)
                raise SystemExit(143)

        super().run(job, poll if job.module == "model.train" else on_poll)


class WatchedLauncher(ForkLauncher):
    """Records which checkpoint a training finds."""

    found: ClassVar[list[int]] = []

    def run(self, job: JobSpec, on_poll: Callable[[], None]) -> None:
        if job.module == "model.train":
            self.found.append(newest_checkpoint(job.out))
        super().run(job, on_poll)


def indices(store: S3Store) -> str:
    names = [name for name in store.bucket.list("train") if name.endswith("index.json")]
    return "".join(store.bucket.read(f"train/{name}").decode() for name in names)


def test_a_training_whose_machine_is_lost_resumes_on_another(
    go_to: Callable[[str], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_sync, "MIN_INTERVAL_SECONDS", 0.0)
    request = RunRequest("small", overrides=("training.checkpoint_every=10",), until="train")
    with monkeypatch.context() as patch:
        patch.setitem(jobs.LAUNCHERS, "local", LosingLauncher)
        with pytest.raises(SystemExit):
            run_small(request)
    monkeypatch.setitem(jobs.LAUNCHERS, "local", WatchedLauncher)
    go_to("second")
    trained = run_small(request).rows[-1]
    assert "resumes from what another machine sent" in capsys.readouterr().err
    store = open_store(Site.named())
    assert isinstance(store, S3Store)
    assert not indices(store), "a finished training leaves no checkpoint in the bucket"
    resumed = store.find("train", trained.key)
    assert resumed
    run_small(replace(request, force=("train",)))
    assert WatchedLauncher.found == [10, 0]
    undisturbed = store.find("train", trained.key)
    assert undisturbed
    assert resumed.content == undisturbed.content
