"""A trainer killed at demo size, through torchrun and Prefect: retried within the same run, to the same weights."""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from infra.store.local import Store
from tasks.stages.train import newest_checkpoint
from tests.flows.test_cli import REPRO

pytestmark = pytest.mark.slow
LAUNCH_SECONDS = 120
"""Most that a killed training needs until it has a new checkpoint, on a machine that is busy."""


def start(root: Path, updates: int) -> subprocess.Popen[str]:
    words = ["run", "demo", "--set", f"training.updates={updates}", "--until", "average", "--json"]
    environment = os.environ | {"REPRO_ROOT": str(root), "REPRO_THREADS": "1"}
    return subprocess.Popen(
        [*REPRO, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def weights(root: Path, process: subprocess.Popen[str], seconds: float) -> bytes:
    """The averaged weights that the process ends with."""
    out, said = process.communicate(timeout=seconds)
    assert process.returncode == 0, said
    row = json.loads(out.splitlines()[-1])["stages"][-1]
    assert (row["stage"], row["state"]) == ("average", "completed")
    assert Store(root).manifest("average", row["key"])
    return (Path(row["path"]) / "model.safetensors").read_bytes()


def newest(root: Path) -> int:
    return max((newest_checkpoint(folder) for folder in root.glob("train/*.partial-*")), default=0)


def trainers(root: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "model.train" in words and any(str(root) in word for word in words) and "torch.distributed.run" not in words:
            found.append(process)
    return found


def wait_for(process: subprocess.Popen[str], done: Callable[[], bool], seconds: float) -> None:
    begun = time.monotonic()
    while not done():
        assert process.poll() is None, "ended before it could be killed"
        assert time.monotonic() - begun < seconds
        time.sleep(0.02)


@pytest.mark.timeout(2400)
def test_a_trainer_killed_at_random_again_and_again_ends_with_the_same_weights(tmp_path: Path) -> None:
    """One kill in each of as many stretches of the training, each after a new checkpoint: else nothing was won."""
    updates, kills = 240, 8
    seconds = 60 + 2 * updates
    undisturbed = weights(tmp_path / "quiet", start(tmp_path / "quiet", updates), seconds)
    root, moments, before = tmp_path / "killed", random.Random(20), 0
    disturbed = start(root, updates)
    for kill in range(kills):
        goal = (kill + moments.random()) * 0.8 * updates / kills

        def further(goal: float = goal, before: int = before) -> bool:
            return newest(root) > max(goal, before)

        wait_for(disturbed, further, LAUNCH_SECONDS + updates)
        before = newest(root)
        moment = time.monotonic() + moments.uniform(0, 1)
        wait_for(disturbed, lambda: time.monotonic() > moment, 2)  # noqa: B023
        (victim,) = trainers(root)
        victim.send_signal(signal.SIGKILL)
        victim.wait(20)
    assert weights(root, disturbed, seconds) == undisturbed
    assert trainers(root) == []
