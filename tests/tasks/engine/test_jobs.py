"""What a run says of the machine before it starts a job."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from infra.launch.job import JobSpec
from infra.site import Site
from infra.store.local import LocalStore
from tasks.engine.jobs import JobRunner
from tasks.engine.stage import StageCall


@pytest.mark.parametrize(("load", "count"), [(0.0, 0), (99.0, 1)])
def test_a_job_on_a_busy_machine_says_the_load(
    load: float, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load * (os.cpu_count() or 1), 0.0, 0.0))
    said: list[str] = []
    runner = JobRunner(
        LocalStore(tmp_path), Site(root=tmp_path), cast(Any, SimpleNamespace(say=said.append)), cast(Any, None)
    )
    runner.launcher = cast(Any, SimpleNamespace(run=lambda job, poll: None))
    call = cast(StageCall, SimpleNamespace(label="train", stage=SimpleNamespace(needs="gpu")))
    runner.run(call, JobSpec("model.train", {}, {}, tmp_path, {}), "")
    assert len(said) == count
