"""A store that repeatedly answers 5xx: the run only takes longer."""

import contextlib
import subprocess
from pathlib import Path

import pytest
from s3_server import Server
from services import Services, artifact_digests, wait_for, wait_for_outcome
from small_pipeline import processes

pytestmark = pytest.mark.slow


def test_a_run_completes_although_the_store_answers_5xx(
    services: Services, undisturbed: Path, s3: Server, tmp_path: Path
) -> None:
    environment = {"REPRO_ROOT": f"s3://{s3.bucket}/prefix", "REPRO_CACHE": f"{tmp_path}"}
    run = services.run(tmp_path / "root", "LONG", "--until", "average", **environment)
    faults, bursts = [(503, "SlowDown"), (500, "InternalError"), (502, "BadGateway")], 0

    def ended_after_another_burst() -> bool:
        nonlocal bursts
        status, code = faults[bursts % len(faults)]
        s3.inject_faults(status=status, code=code, times=2)
        bursts += 1
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(5)
        return run.returncode is not None

    wait_for(ended_after_another_burst)
    assert wait_for_outcome(run)
    assert bursts > 5
    (cache,) = tmp_path.iterdir()
    assert artifact_digests(cache) == artifact_digests(undisturbed)
    wait_for(lambda: not processes(environment["REPRO_ROOT"]))
    assert services.running() == {}
