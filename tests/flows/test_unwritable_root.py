"""A root on a read-only file system can be planned, run where all is cached, and translated with; a damaged mlflow.db
is one sentence before anything starts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_pipeline import write_run_file

REPRO = f"{sys.executable} -c 'from flows.cli import main; main()'"
READ_ONLY = 'mount --bind "$REPRO_ROOT" "$REPRO_ROOT" && mount -o remount,bind,ro "$REPRO_ROOT" && '


@pytest.fixture
def run(small: Path, tmp_path: Path) -> str:
    """The word for the run of the finished root ``small``, which is set as REPRO_ROOT."""
    return f"{write_run_file(tmp_path / 'mine.py', Path(os.environ['REPRO_MIRRORS']))}:SMALL"


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", command], input="A cat.\n", capture_output=True, text=True)


def read_only(words: str) -> subprocess.CompletedProcess[str]:
    """Run ``repro`` in a mount namespace of its own in which the root cannot be written, not even by root."""
    unshared = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "bash", "-c"]
    if not shutil.which("unshare") or subprocess.run([*unshared, f"{READ_ONLY} true"], capture_output=True).returncode:
        pytest.skip("NOT RUN: this machine lets nobody mount a folder read-only")
    command = [*unshared, f"{READ_ONLY} {REPRO} {words}"]
    return subprocess.run(command, input="A cat.\n", capture_output=True, text=True)


def test_a_read_only_root_can_be_read(small: Path, run: str) -> None:
    planned, done = read_only(f"plan {run} --json"), read_only(f"run {run} --json")
    assert (planned.returncode, planned.stdout.count('"state": "hit"')) == (0, done.stdout.count('"state": "cached"'))
    assert done.returncode == 0, done.stderr
    assert '"state": "miss"' not in planned.stdout
    translated = read_only("translate --model small")
    assert (translated.returncode, translated.stdout.count("\n")) == (0, 1), translated.stderr


def test_work_in_a_read_only_root_is_one_sentence(small: Path, run: str) -> None:
    done = read_only(f"run {run} --force score")
    said = [line for line in done.stderr.splitlines() if line.startswith("repro:")]
    assert (done.returncode, len(said)) == (1, 1), done.stderr
    assert said[0].startswith(f"repro: {small}/")
    assert "cannot be opened or written: Read-only file system; make it writable, or set REPRO_ROOT" in said[0]


@pytest.mark.parametrize("words", ["plan {}", "run {} --force score", "models", "translate --model small"])
def test_a_damaged_database_is_one_sentence(small: Path, run: str, words: str) -> None:
    (small / "mlflow.db").write_bytes(b"SQLite format 3\0" + b"damaged" * 1000)
    done = shell(f"{REPRO} {words.format(run)}")
    assert done.returncode == 2, done.stderr
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith(f"repro: {small}/mlflow.db is not a database of MLflow (")
    assert sentence.endswith("): restore or remove it")
