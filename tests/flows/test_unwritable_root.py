"""A root on a read-only file system can be planned, run where all is cached, and translated with; one on a file system
without programs can be worked in; a damaged mlflow.db is one sentence before anything starts."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_pipeline import write_run_file

from tests.flows.test_cli import call

REPRO = f"{sys.executable} -c 'from flows.cli import main; main()'"
SEVERAL = """
import sys
from flows import cli

words = sys.argv[1:]
for each in words:
    sys.argv = ["repro", *each.split()]
    try:
        cli.main()
    except SystemExit as end:
        if end.code:
            raise
"""
MOUNT = 'mount --bind "$REPRO_ROOT" "$REPRO_ROOT" && mount -o remount,bind,{option} "$REPRO_ROOT" && '


@pytest.fixture
def run(small: Path, tmp_path: Path) -> str:
    """The word for the run of the finished root ``small``, which is set as REPRO_ROOT."""
    return f"{write_run_file(tmp_path / 'mine.py', Path(os.environ['REPRO_MIRRORS']))}:SMALL"


def in_mount(option: str, line: str) -> list[str]:
    """The command that runs a shell ``line`` in a mount namespace of its own, with the root mounted with ``option``.

    With ro nobody can write to it, not even root; with noexec nothing in it can be started as a program.
    """
    mount = MOUNT.format(option=option)
    unshared = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "bash", "-c"]
    if not shutil.which("unshare") or subprocess.run([*unshared, f"{mount} true"], capture_output=True).returncode:
        pytest.skip("NOT RUN: this machine lets nobody mount a folder")
    return [*unshared, f"{mount} {line}"]


def mounted(option: str, words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(in_mount(option, f"{REPRO} {words}"), input="A cat.\n", capture_output=True, text=True)


def test_a_read_only_root_can_be_read_and_its_versions_used(small: Path, run: str, tmp_path: Path) -> None:
    program, given, out = tmp_path / "several.py", tmp_path / "in.txt", tmp_path / "out"
    program.write_text(SEVERAL)
    given.write_text("A cat.\n")
    out.mkdir()
    commands = [
        f"plan {run} --json",
        f"run {run} --json",
        f"translate {given} {out / 'translated'} --model small",
        "show small@champion",
        f"trace Hello --attention --model small --out {out / 'heads.png'}",
        f"export small@champion --to ctranslate2 --out {out / 'exported'}",
    ]
    line = " ".join([sys.executable, f"{program}", *(f"'{words}'" for words in commands)])
    done = subprocess.run(in_mount("ro", line), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    planned, ran = (json.loads(each)["stages"] for each in done.stdout.splitlines() if each.startswith("{"))
    assert {stage["state"] for stage in (*planned, *ran)} == {"cached"}
    assert len(planned) == len(ran)
    assert (out / "translated").read_text().count("\n") == 1
    assert "source run" in done.stdout
    assert {path.name for path in out.iterdir()} == {"translated", "heads.png", "exported"}


def test_a_page_is_served_from_a_read_only_root(small: Path) -> None:
    line = f"exec {REPRO} serve small --port 0 --engine own"
    serving = subprocess.Popen(in_mount("ro", line), stderr=subprocess.PIPE, text=True)
    try:
        said = []
        for each in serving.stderr or ():
            said.append(each)
            if "http://127.0.0.1:" in each:
                break
        else:
            pytest.fail("".join(said))
    finally:
        serving.terminate()
        serving.communicate()


def test_work_in_a_read_only_root_is_one_sentence(small: Path, run: str) -> None:
    done = mounted("ro", f"run {run} --force score")
    said = [line for line in done.stderr.splitlines() if line.startswith("repro:")]
    assert (done.returncode, len(said)) == (1, 1), done.stderr
    assert said[0].startswith(f"repro: {small}/")
    assert "cannot be opened or written: Read-only file system; make it writable, or set REPRO_ROOT" in said[0]


@pytest.mark.slow
def test_a_root_without_programs_can_be_worked_in(small: Path, run: str) -> None:
    done = mounted("noexec", f"run {run} --json --from shard --until score")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["scores"]


@pytest.mark.parametrize("words", ["plan {}", "run {} --force score", "models", "translate /dev/null --model small"])
def test_a_damaged_database_is_one_sentence(
    small: Path,
    run: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    (small / "mlflow.db").write_bytes(b"SQLite format 3\0" + b"damaged" * 1000)
    assert call(monkeypatch, *words.format(run).split()) == 2
    assert not caplog.messages, "each would be one more line"
    said = capsys.readouterr().err.splitlines()
    *_, sentence = said
    assert len(said) == 1 + words.startswith("run")
    assert sentence.startswith(f"repro: {small}/mlflow.db is not a database of MLflow (")
    assert sentence.endswith("): restore or remove it")
