"""End to end as a user does it: command line, temporary Prefect server, torchrun, MLflow, model loaded by alias."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from patience import limit
from small_pipeline import all_gone, write_run_file

from tests.flows.test_cli import REPRO, call, repro

PREDICT = """
import mlflow
model = mlflow.pyfunc.load_model("models:/small@champion")
lines = ["The dog sees a cat. A man runs.", ""]
whole = model.predict(lines)
split = model.predict(lines, params={"split": "always"})
alone = model.predict(["The dog sees a cat.", "A man runs."])
print(len(whole), split == [" ".join(alone), ""])
try:
    model.predict(["cat " * 2000])
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, -9, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_the_run_its_server_and_its_jobs(tmp_path: Path, number: signal.Signals, status: int) -> None:
    root = tmp_path / "stopped"
    write_run_file(tmp_path / "mine.py", tmp_path / "mirror")
    environment = os.environ | {"REPRO_ROOT": str(root), "REPRO_MIRRORS": str(tmp_path / "mirror")}
    words = ["run", f"{tmp_path / 'mine.py'}:SMALL"]
    process = subprocess.Popen([*REPRO, *words], env=environment, stderr=subprocess.PIPE, text=True)
    while not list(root.glob("train/*")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    _, said = process.communicate(timeout=limit(30.0))
    assert process.returncode == status, said
    assert "Traceback" not in said
    assert ("interrupted" in said) == (number != signal.SIGKILL)
    left = [path.name for path in root.glob("*/*.partial-*") if "-resume-" not in path.name]
    assert not left or number == signal.SIGKILL
    assert all_gone(root)


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs of ``small`` through Prefect; ``first.json`` and ``again.json`` hold the outcomes."""
    folder = tmp_path_factory.mktemp("walked")
    write_run_file(folder / "mine.py", folder / "mirror")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPRO_ROOT", str(folder / "root"))
        patch.setenv("REPRO_MIRRORS", str(folder / "mirror"))
        patch.setenv("REPRO_THREADS", "1")
        for name in ("first", "again"):
            done = repro("run", f"{folder / 'mine.py'}:SMALL", "--json")
            assert done.returncode == 0, done.stderr
            outcome = json.loads(done.stdout.splitlines()[-1]) | {"said": done.stderr}
            (folder / f"{name}.json").write_text(json.dumps(outcome))
    return folder


@pytest.fixture
def here(walked: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REPRO_ROOT", str(walked / "root"))
    return walked


def test_the_first_run_makes_all_stages_and_the_second_none(here: Path) -> None:
    first, again = (json.loads((here / f"{name}.json").read_text()) for name in ("first", "again"))
    assert {stage["state"] for stage in first["stages"]} == {"completed"}
    assert {stage["state"] for stage in again["stages"]} == {"cached"}
    assert first["scores"] == again["scores"]
    assert set(first["scores"]) == {"dev", "test"}
    assert first["model_version"] == again["model_version"] == "small/1"
    for stage in first["stages"]:
        assert set(stage) >= {"stage", "item", "key", "state", "seconds", "path", "facts"}
        assert Path(stage["path"]).is_dir()
    assert "mlflow ui" in first["said"]
    assert "/repro up   then http://127.0.0.1:4200" in first["said"]
    assert "server start" not in first["said"], "any web page can command a server without the service's protection"
    assert "reference" in first["said"], "a few translations are shown"


def test_prefect_records_the_run_with_readable_names(here: Path) -> None:
    with sqlite3.connect(here / "root" / "prefect" / "prefect.db") as database:
        runs = database.execute("select name, state_type from flow_run").fetchall()
        names = {name for (name,) in database.execute("select name from task_run")}
        states = {state for (state,) in database.execute("select state_type from task_run")}
        artifacts = {key for (key,) in database.execute("select key from artifact")}
    assert [state for _, state in runs] == ["COMPLETED"]
    assert {"download small/train.en", "clean", "train", "translate dev", "score test", "register"} <= names
    assert states == {"COMPLETED"}
    assert "scores" in artifacts


def test_the_model_is_listed_loaded_and_translates(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "models") == 0
    listed = capsys.readouterr().out
    assert listed.startswith("small/1 ")
    assert "champion" in listed
    assert "candidate" in listed
    done = repro("translate", "-", "--model", "small@candidate", stdin="The dog sees a cat.\n\nA cat.\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 3
    assert done.stdout.split("\n")[1] == ""
    environment = os.environ | {"MLFLOW_TRACKING_URI": f"sqlite:///{here / 'root' / 'mlflow.db'}"}
    loaded = subprocess.run([sys.executable, "-c", PREDICT], env=environment, capture_output=True, text=True, cwd=here)
    first, second = loaded.stdout.splitlines()
    assert first == "2 True", loaded.stderr
    assert re.fullmatch(r"line 1 has a sentence of \d+ pieces, the longest that this model takes has 1000", second)


def test_files_are_translated_line_by_line(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text, out = here / "in.txt", here / "out.txt"
    words = ("translate", f"{text}", f"{out}", "--model", "small")
    text.write_bytes(b"The dog sees a cat. A man runs.\n\nA cat\xff.\r\n" + b"cat " * 2000)
    assert call(monkeypatch, *words, "--split", "always", "--beam", "2") == 1
    printed, said = capsys.readouterr()
    assert printed == ""
    assert re.search(r"line 4 has a sentence of \d+ pieces, the longest that this model takes has 1000", said)
    assert "not UTF-8, U+FFFD replaces the bytes that could not be read: line 3" in said
    assert [bool(line) for line in out.read_bytes().split(b"\n")] == [True, False, True, False, False]
    text.write_text("A cat.\n\n")
    assert call(monkeypatch, *words, "--n-best", "2", "--beam", "3") == 0
    first, second = map(json.loads, out.read_text().splitlines())
    assert [each["text"] for each in second["hypotheses"]] == [""]
    assert len(first["hypotheses"]) == 2
    assert first["hypotheses"][0]["score"] >= first["hypotheses"][1]["score"]


def test_translate_streams_and_survives_a_closed_pipe(here: Path) -> None:
    words = [*REPRO, "translate", "--model", "small", "--beam", "1"]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdin.write(b"A cat.\n")
    process.stdin.flush()
    assert process.stdout.readline().endswith(b"\n")
    process.stdout.close()
    process.stdin.write(b"A cat.\n")
    process.stdin.close()
    assert process.wait(100) == 1
    said = process.stderr.read().decode().splitlines()
    assert [line.partition(" is searched by ")[0] for line in said] == ["repro: small/1"], (
        "which engine, and no traceback"
    )
