"""The stage that translates training text starts a job again while jobs leave new blocks."""

from pathlib import Path

import pytest

from infra.errors import Preempted
from infra.site import Site
from infra.store.store import Artifact
from infra.tracking.tracker import Tracker
from model.config import Decoding
from tasks.engine.stage import JobRequest, StageCall, StageContext, stage_context
from tasks.stages.translate_text import translate_text


def test_a_job_that_left_another_block_uses_up_no_retry(tmp_path: Path) -> None:
    def ended_by_slurm(_: JobRequest) -> None:
        number = len(list(tmp_path.glob("*.parquet")))
        if number < 3:
            (tmp_path / f"{number:05d}.parquet").touch()
        raise Preempted("the job was ended by SLURM")

    failures: list[str] = []
    call = StageCall(translate_text, "", {})
    around = StageContext(
        Site(root=tmp_path), call, ended_by_slurm, lambda *_: None, Tracker("", tmp_path), "", failures=failures
    )
    inputs = [Artifact(name, "k", tmp_path) for name in ("weights", "vocabulary", "text")]
    with stage_context(around), pytest.raises(Preempted):
        translate_text.body(tmp_path, *inputs, Decoding())
    assert failures == ["the job was ended by SLURM"] * 3, "the last try's reason is noted by the runner"
