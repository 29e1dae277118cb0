"""A trainer killed at demo size, through torchrun and Prefect: retried within the same run, to the same weights."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from test_cli import REPRO

from infra.store import Store

pytestmark = pytest.mark.slow
WORDS = ["run", "demo", "--set", "training.updates=120", "--until", "train", "--json"]


def start(root: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"REPRO_ROOT": str(root)}
    return subprocess.Popen(
        [*REPRO, *WORDS], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def weights(root: Path, process: subprocess.Popen[str]) -> str:
    out, said = process.communicate(timeout=280)
    assert process.returncode == 0, said
    row = json.loads(out.splitlines()[-1])["stages"][-1]
    assert (row["stage"], row["state"]) == ("train", "completed")
    manifest = Store(root).manifest("train", row["key"])
    assert manifest
    return manifest.content


def update_reached(root: Path) -> int:
    for metrics in root.glob("train/*.partial-*/metrics.jsonl"):
        lines = metrics.read_text().splitlines()
        if lines and lines[-1].endswith("}"):
            return int(json.loads(lines[-1])["done"])
    return 0


def trainers(root: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "model.train" in words and any(str(root) in word for word in words) and "torch.distributed.run" not in words:
            found.append(process)
    return found


def test_sigkill_of_the_trainer_is_survived_within_the_run(tmp_path: Path) -> None:
    undisturbed = weights(tmp_path / "quiet", start(tmp_path / "quiet"))
    disturbed = start(tmp_path / "killed")
    for goal in (20, 60):
        while update_reached(tmp_path / "killed") < goal:
            assert disturbed.poll() is None
            time.sleep(0.05)
        (victim,) = trainers(tmp_path / "killed")
        victim.send_signal(signal.SIGKILL)
        victim.wait(20)
    assert weights(tmp_path / "killed", disturbed) == undisturbed
    assert trainers(tmp_path / "killed") == []
