"""The training stage: what it says of a training that it resumes."""

from pathlib import Path

import pytest
from small_training import MODEL, TRAINING

from infra.errors import JobFailed
from infra.site import Site
from infra.store.store import Artifact
from infra.tracking.tracker import Tracker
from tasks.engine.stage import JobRequest, StageCall, StageContext, stage_context
from tasks.stages.train import train


def test_it_says_from_which_update_it_resumes(tmp_path: Path) -> None:
    def fails(_: JobRequest) -> None:
        raise JobFailed("no memory")

    said: list[str] = []
    site = Site(root=tmp_path)
    call = StageCall(train, "", {})
    around = StageContext(site, call, fails, lambda *_: None, Tracker("", tmp_path), "", say=said.append)
    inputs = [Artifact(name, "k", tmp_path) for name in ("shards", "dev", "vocabulary")]
    for expected in ([], ["train resumes from update 28"]):
        with stage_context(around), pytest.raises(JobFailed):
            train.body(tmp_path, *inputs, MODEL, TRAINING)
        assert said == expected
        (tmp_path / "checkpoints" / "00000028").mkdir(parents=True, exist_ok=True)
