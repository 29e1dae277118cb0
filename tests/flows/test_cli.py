"""The command line: what each command prints, and its exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from patience import limit

from flows import cli
from flows.cli import COMMANDS
from flows.runs import RUNS, VARIATIONS

REPRO = [sys.executable, "-c", "from flows.cli import main; main()"]


def repro(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*REPRO, *words], input=stdin, capture_output=True, text=True, check=False, timeout=limit(60.0)
    )


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    """The exit code of a command in this process, which spares the imports."""
    monkeypatch.setattr(cli.signals, "install_handlers", lambda: None)
    monkeypatch.setattr(sys, "argv", ["repro", *words])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code


def test_runs_are_listed_one_a_line_and_table_3_on_one_or_as_one_json_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "show") == 0
    *lines, table_3 = capsys.readouterr().out.splitlines()
    name, _, rows = table_3.partition("  ")
    listed = [name.replace("ROW", row) for row in rows.partition(": ")[2].split(", ")]
    assert listed == list(VARIATIONS)
    assert [line.split()[0] for line in lines] + listed == list(RUNS)
    assert call(monkeypatch, "show", "--json") == 0
    assert list(json.loads(capsys.readouterr().out)["runs"]) == list(RUNS)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_has_an_example(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, *filter(None, [command]), "--help") == 0
    assert "xample" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["run", "dem"], "did you mean demo?"),
        (["plan", "my-rum"], "did you mean my-run.toml?"),
        (["plan", "my-urn"], "did you mean my-run.toml?"),
        (["run", "nowhere.toml"], "nowhere.toml"),
        (["plan", "demo", "--until", "trian"], "did you mean train or translate?"),
        (["plan", "demo", "--set", "training.update=3"], "did you mean updates"),
        (["plan", "demo", "--site", "moon"], "'moon'"),
        (["trace", "demo", "demo7"], "'demo7'"),
        (["trace", "demo"], "pair-id"),
        (["translate", "--alpha", "-1"], "--alpha"),
        (["translate", "--beam", "4", "--n-best", "8"], "--n-best"),
        (["translate", "--bem", "4"], "--bem"),
        (["fly"], "fly"),
        (["test"], "'test': `repro help`"),
        (["versions"], "use `repro models`"),
        (["traslate"], "did you mean translate?"),
        (["run"], "RUN is missing: a run (see `repro show`)"),
        (["logs"], "For example: repro logs demo"),
        (["run", "--set"], "--set requires an argument"),
        (["trian"], "use `repro run`"),
    ],
)
def test_wrong_arguments_are_one_error_and_exit_code_2(
    words: list[str], named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my-run.toml").touch()
    assert call(monkeypatch, *words) == 2
    out, said = capsys.readouterr()
    assert named in said
    assert "Traceback" not in said
    assert out == ""


@pytest.mark.parametrize("is_compiled", [True, False])
def test_only_a_start_that_compiles_is_said_to_take_long(
    is_compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled = tmp_path / "run.pyc"
    if is_compiled:
        compiled.touch()
    monkeypatch.setattr(cli, "find_spec", lambda _: SimpleNamespace(cached=f"{compiled}"))
    monkeypatch.setattr(cli, "application", lambda **_: lambda *_, **__: sys.exit(0))
    call(monkeypatch, "run", "demo")
    said = capsys.readouterr().err
    assert "repro run: starting ..." in said
    assert ("up to a minute" in said) != is_compiled


def test_plan_says_miss_and_why_as_json() -> None:
    done = repro("plan", "demo", "--json", "--until", "clean", "--set", "training.updates=1")
    assert "repro: averaging.count is 1 in place of" in done.stderr, "a notice begins like any message"
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert [stage["stage"] for stage in outcome["stages"]][-1] == "clean"
    assert {stage["state"] for stage in outcome["stages"]} == {"miss"}
    assert set(outcome) == {"run", "stages", "scores", "model_version"}


def test_a_run_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "my_runs.py"
    file.write_text("from dataclasses import replace\nfrom flows.runs import DEMO\nMINE = replace(DEMO, name='mine')\n")
    for words in ((f"{file}:MINE",), ("--run", f"{file}:MINE")):
        assert call(monkeypatch, "plan", *words, "--json") == 0
        assert json.loads(capsys.readouterr().out)["run"] == "mine"
    assert call(monkeypatch, "plan", f"{file}:YOURS") == 2
    assert "its runs are: DEMO, MINE" in capsys.readouterr().err
    file.write_text("1 / 0\n")
    assert call(monkeypatch, "plan", f"{file}:MINE") != 0
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_a_failed_stage_is_the_last_line() -> None:
    """End to end: a temporary Prefect server, a task that fails, the exit code, and the outcome as JSON."""
    refusing = "filters.rules=Length(min=8),NotIn"  # a fault that no retry, which would wait first, can mend
    done = repro("run", "demo", "--json", "--until", "clean", "--set", refusing)
    assert done.returncode == 1, done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("repro: clean failed: The filters reject ")
    assert "Traceback" not in done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert [stage["state"] for stage in outcome["stages"] if stage["stage"] == "clean"] == ["failed"]
    assert not list(Path(os.environ["REPRO_ROOT"]).glob("clean/*/manifest.json"))


def test_the_shell_completes(tmp_path: Path) -> None:
    """In bash itself, by the script that the program installs."""
    script = tmp_path / "completion.bash"
    programs = tmp_path / "repro"
    programs.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'from flows.cli import main; main()' \"$@\"\n")
    programs.chmod(0o755)
    assert repro("--install-completion", "--shell", "bash", "--output", f"{script}").returncode == 0
    ask = (
        f'PATH={tmp_path}:$PATH; . {script}; COMP_WORDS=(repro "$@"); COMP_CWORD=$#; COMP_LINE="${{COMP_WORDS[*]}}"; '
        'COMP_POINT=${#COMP_LINE}; _repro; echo "${COMPREPLY[@]}"'
    )
    for words, offered in (
        (["plan", "multi30k-end"], "multi30k-ende"),
        (["run", "demo", "--until", ""], "learn_bpe"),
        (["run", "demo", "--set", ""], "training.updates="),
    ):
        done = subprocess.run(["bash", "-c", ask, "bash", *words], capture_output=True, text=True, check=True)
        assert offered in done.stdout.split()
