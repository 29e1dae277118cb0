"""The command line: what each command prints, and its exit code."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flows import __version__, cli
from flows.cli import COMMANDS
from flows.runs import RUNS, VARIATIONS
from infra.tracking import provenance

REPRO = [sys.executable, "-c", "from flows.cli import main; main()"]


def repro(*words: str, stdin: str = "", seconds: int = 280) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*REPRO, *words], input=stdin, capture_output=True, text=True, check=False, timeout=seconds)


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    """The exit code of a command in this process, which spares the imports."""
    monkeypatch.setattr(cli.signals, "install_handlers", lambda: None)
    monkeypatch.setattr(sys, "argv", ["repro", *words])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code


def test_runs_are_listed_one_a_line_and_table_3_on_one() -> None:
    done = repro("show")
    assert done.returncode == 0
    *lines, table_3 = done.stdout.splitlines()
    name, _, rows = table_3.partition("  ")
    listed = [name.replace("ROW", row) for row in rows.partition(": ")[2].split(", ")]
    assert listed == list(VARIATIONS)
    assert [line.split()[0] for line in lines] + listed == list(RUNS)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_has_an_example(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, *filter(None, [command]), "--help") == 0
    assert "xample" in capsys.readouterr().out


def test_examples_name_runs_that_exist() -> None:
    repository = Path(cli.__file__).parents[1]
    files = [repository / "README.md", *repository.glob("docs/*.md"), *repository.glob("flows/commands/*.py")]
    found = {
        name
        for file in files
        for name in re.findall(r"repro (?:run|plan|sweep) ([a-z][\w-]*)(?![\w.-])", file.read_text())
    }
    assert "demo" in found
    assert found <= set(RUNS)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "dem"], "unknown run 'dem'; did you mean demo? `repro show` lists them"),
        (["plan", "my-run"], "unknown run 'my-run'; did you mean my-run.toml?"),
        (["run", "nowhere.toml"], "nowhere.toml cannot be read: No such file or directory"),
        (
            ["plan", "demo", "--until", "trian"],
            "unknown stage 'trian'; did you mean train or translate? known are: download,",
        ),
        (["plan", "demo", "--from", "nothing"], "unknown stage 'nothing'"),
        (["plan", "demo", "--set", "training.update=3"], "did you mean updates"),
        (["plan", "demo", "--site", "moon"], "unknown site 'moon', known are: local, gpu"),
        (["plan", "nowhere.py:TINY"], "no file 'nowhere.py'"),
        (
            ["trace", "demo", "demo7"],
            "unknown pair_id 'demo7': the run demo has demo (not read yet), dev (not read yet)",
        ),
        (["trace", "demo"], "pair-id"),
        (["translate", "--alpha", "-1"], "--alpha is -1.0, allowed is 0 or above"),
        (["translate", "--beam", "4", "--n-best", "8"], "--n-best is 8, allowed is 1 to 7, the most that can finish"),
        (["translate", "--sample", "--top-k", "-1"], "--top-k is -1, allowed is 0 (all) or a whole number above"),
        (["translate", "--temperature", "0.5"], "--temperature is 0.5, allowed with --sample only"),
        (["translate", "--sample", "--beam", "2"], "--beam is 2, allowed without --sample only"),
        (["translate", "--language", "9"], "--language is '9', allowed is an ISO 639-1 code such as de"),
        (["translate", "--split", "sometimes"], 'Choose from: "long", "always", "never"'),
        (["translate", "--prefix", "A", "--prefix-column"], "--prefix is 'A', allowed without --prefix-column only"),
        (["translate", "--bem", "4"], "unknown option --bem"),
        (["fly"], "fly"),
        (["run"], "run"),
    ],
)
def test_wrong_arguments_are_one_error_and_exit_code_2(
    words: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my-run.toml").touch()
    assert call(monkeypatch, *words) == 2
    out, said = capsys.readouterr()
    assert sentence in said
    assert "Traceback" not in said
    assert out == ""


@pytest.mark.parametrize("command", cli.REMOVED)
def test_a_removed_command_names_the_new_way(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, command, "--json") == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert command not in COMMANDS


def test_pages_name_no_removed_command() -> None:
    repository = Path(cli.__file__).parents[1]
    pages = [path for path in repository.glob("docs/*.md") if path.name != "commands.md"]
    words = {word for page in pages for word in re.findall(r"\brepro ([a-z-]+)", page.read_text())}
    assert sorted(words & {*cli.REMOVED}) == []


def test_plan_says_miss_and_why_as_json() -> None:
    done = repro("plan", "demo", "--json", "--until", "clean")
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert [stage["stage"] for stage in outcome["stages"]][-1] == "clean"
    assert {stage["state"] for stage in outcome["stages"]} == {"miss"}
    assert set(outcome) == {"run", "stages", "scores", "model_version"}


def test_a_run_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "my_runs.py"
    file.write_text("from dataclasses import replace\nfrom flows.runs import DEMO\nMINE = replace(DEMO, name='mine')\n")
    assert json.loads(repro("plan", f"{file}:MINE", "--json").stdout)["run"] == "mine"
    assert json.loads(repro("plan", "--run", f"{file}:MINE", "--json").stdout)["run"] == "mine"
    answer = repro("plan", f"{file}:YOURS")
    assert (answer.returncode, "its runs are: DEMO, MINE" in answer.stderr) == (2, True)
    file.write_text("1 / 0\n")
    assert "ZeroDivisionError" in repro("plan", f"{file}:MINE").stderr


def test_no_model_yet() -> None:
    assert "repro run demo" in repro("models").stderr
    done = repro("translate", "--model", "demo@champion", stdin="A dog.\n")
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr


def test_a_failed_stage_is_the_last_line(tmp_path: Path) -> None:
    """End to end: a temporary Prefect server, a task that fails, the exit code, and the outcome as JSON."""
    done = repro("run", "wmt14-sample-ende", "--json", "--until", "download")
    assert done.returncode == 1, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("repro: download wmt14_sample/train.en.gz failed: ")
    assert "REPRO_MIRRORS" in last
    assert "Traceback" not in done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["stages"][-1]["state"] == "failed"
    assert not list(Path(os.environ["REPRO_ROOT"]).glob("download/*"))


def test_only_resumable_commands_say_so_when_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "application", lambda **_: interrupted)
    said = {}
    for command in ("run", "translate", "serve"):
        assert call(monkeypatch, "--debug", command) == 130
        said[command] = capsys.readouterr().err
    assert "Repeat the same command to resume" in said["run"]
    assert said["translate"] == said["serve"] == "repro: interrupted\n"


def test_the_list_of_commands_shows_the_first_paragraph_of_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    assert call(monkeypatch, "--help") == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for name, path in COMMANDS.items():
        module, _, function = path.partition(":")
        text = getattr(importlib.import_module(module), function).__doc__.partition("\n\n")[0]
        assert f"{name} {' '.join(text.split())}" in shown


def test_the_version_names_the_commit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(provenance, "commit", lambda: "0123abc+")
    assert call(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"{__version__} (0123abc+)\n"


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["pl"], "plan"),
        (["plan", "multi30k-end"], "multi30k-ende"),
        (["run", "demo", "--until", ""], "learn_bpe"),
        (["run", "demo", "--set", ""], "training.updates="),
        (["sweep", "wmt14-ende-b"], "wmt14-ende-base"),
    ],
)
def test_the_shell_completes(words: list[str], offered: str, tmp_path: Path) -> None:
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
    done = subprocess.run(["bash", "-c", ask, "bash", *words], capture_output=True, text=True, check=True)
    assert offered in done.stdout.split()
