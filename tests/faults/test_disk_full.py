"""A full disk: one clear error, finished stages stay, and the next run resumes once there is room."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from services import TIMEOUT_SECONDS, Services, has_checkpoint, stage_states, wait_for, wait_for_outcome

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_left")]
UNTIL = ("--until", "average")


@pytest.fixture
def root(root: Path) -> Iterator[Path]:
    """The root on its own file system of 32 MB."""
    copy = root.rename(root.with_name("copy"))
    root.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "none", root], capture_output=True).returncode:
        pytest.skip("NOT RUN: a small file system cannot be mounted here")
    try:
        shutil.copytree(copy, root, dirs_exist_ok=True)
        yield root
    finally:
        subprocess.run(["umount", root], check=True)


def test_a_run_resumes_once_space_is_free(services: Services, root: Path) -> None:
    run = services.run(root, "LONG", *UNTIL)
    wait_for(lambda: has_checkpoint(root))
    with (root / "filler").open("wb") as filler:
        free = os.statvfs(root)
        os.posix_fallocate(filler.fileno(), 0, free.f_bavail * free.f_frsize)
    _, said = run.communicate(timeout=TIMEOUT_SECONDS)
    assert run.returncode == 1, said
    assert f"{root}" in said.splitlines()[-1]
    assert "Traceback" not in said
    (root / "filler").unlink()
    outcome = stage_states(wait_for_outcome(services.run(root, "LONG", *UNTIL)))
    assert outcome["shard"] == {"cached"}
    assert outcome["average"] == {"completed"}
