"""Every command of the documentation is one that its program accepts, and the cheap ones work."""

import os
import re
import runpy
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App, CycloptsError, MissingArgumentError
from documented_commands import TOP, DocumentedCommand, commands_in, documented_commands
from documented_states import ours
from documented_world import write_texts

from flows import cli
from flows.commands import paper, run, sweep
from infra.errors import BadConfiguration
from tests.flows.test_cli import call

COMMANDS = documented_commands()
SHORTENED = re.compile(r"…|^[A-Z_]+$")
"""What stands for something else in a sentence."""
CALLED_ELSEWHERE = ("tests/fingerprints.py", "tests/simulate.py", "exports/")
"""Programs of Python whose arguments are not checked here: tests of their own call them, or an export writes them."""


def of(*programs: str) -> list[Any]:
    return [pytest.param(each, id=f"{each}") for each in COMMANDS if each.words[0] in programs]


class Reached(Exception):
    """The command's arguments are valid: it would work now."""


def reached(*_: object, **__: object) -> None:
    raise Reached


@pytest.fixture(scope="module")
def application() -> App:
    return cli.application()


def parse(application: App, command: DocumentedCommand) -> None:
    """Raise CycloptsError for an unknown command, option or value; in a sentence some may be left out."""
    words = list(command.words[1:])
    if not command.whole:
        words = [word for word in words if not SHORTENED.search(word)]
    try:
        application.parse_args(words, exit_on_error=False, print_error=False)
    except MissingArgumentError:
        if command.whole:
            raise


@pytest.mark.parametrize("command", of("repro"))
def test_the_program_accepts_its_commands(
    command: DocumentedCommand, application: App, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Runs and settings are resolved too, where they are whole and of built-in runs."""
    if command.words[1].startswith("-"):  # of the program itself
        assert command.words[1] in ("--help", "--version", "--install-completion")
        return
    parse(application, command)
    resolvable = command.words[1] in ("run", "plan", "sweep", "paper") and not any(
        SHORTENED.search(word) or word.endswith((".toml", ".py:TINY")) or "/" in word for word in command.words
    )
    if not resolvable or (not command.whole and command.words[1] != "paper" and len(command.words) < 3):
        return
    monkeypatch.chdir(tmp_path)
    for module, name in ((run, "dispatch"), (run, "run_seeds"), (paper, "dispatch_paper"), (sweep, "dispatch_sweep")):
        monkeypatch.setattr(module, name, reached)
    monkeypatch.setattr(run, "check_database", reached)
    with pytest.raises(Reached):
        application(command.words[1:], exit_on_error=False, print_error=False)


@pytest.mark.parametrize(
    "line",
    [
        "repro run demo --sett training.updates=3",
        "repro rnu demo",
        "repro run demo --set training.update=3",
        "repro plan dmeo",
        "repro plan demo --until trian",
        "repro models --sort best",
        "repro paper --rows A9",
    ],
)
def test_a_mistake_in_a_command_would_be_found(
    line: str, application: App, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    [words] = commands_in(f"X=1 {line}   # a comment")
    with pytest.raises((CycloptsError, BadConfiguration)):
        test_the_program_accepts_its_commands(DocumentedCommand("", words, True), application, monkeypatch, tmp_path)


def test_lines_of_shell_are_taken_apart() -> None:
    assert commands_in("repro up && repro deploy demo --activate  # then") == [
        ("repro", "up"),
        ("repro", "deploy", "demo", "--activate"),
    ]
    assert commands_in('cp $(repro path a/b)/x . | A=1 repro translate "a b" < in > out') == [
        ("repro", "path", "a/b"),
        ("repro", "translate", "a b"),
    ]
    assert commands_in("prefect  running  healthy") == []
    assert commands_in("the repro command") == []


@pytest.mark.parametrize("command", of("make"))
def test_make_has_the_target(command: DocumentedCommand) -> None:
    assert re.search(rf"^{re.escape(command.words[1])}:", (TOP / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("command", of("python"))
def test_programs_of_python_accept_their_options(command: DocumentedCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    name, *words = command.words[1:]
    if name == "-m":
        assert (TOP / f"{words[0].replace('.', '/')}.py").is_file()
        return
    if name.startswith(CALLED_ELSEWHERE):
        assert name.startswith("exports/") or (TOP / name).is_file()
        return
    original = ArgumentParser.parse_args

    def parse_alone(self: ArgumentParser, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        raise Reached

    monkeypatch.setattr(ArgumentParser, "parse_args", parse_alone)
    monkeypatch.setattr(os, "execve", lambda *_: None)  # with another allocator
    monkeypatch.setattr(sys, "argv", [name, *words])
    monkeypatch.syspath_prepend(str(TOP / name))
    try:
        with pytest.raises(Reached):
            runpy.run_path(f"{TOP / name}", run_name="__main__")
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        pytest.skip("NOT RUN: triton comes with torch for CUDA alone")


@pytest.mark.parametrize("command", of("prefect", "mlflow"))
def test_prefect_and_mlflow_accept_theirs(command: DocumentedCommand) -> None:
    if command.words[0] == "prefect":
        from prefect.cli._app import _app

        parse(_app, command)
        return
    from mlflow.cli import cli as group

    context = group.make_context("mlflow", list(command.words[1:]), resilient_parsing=False)
    while hasattr(context.command, "commands"):
        name, found, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
        context = found.make_context(name, rest, parent=context)


CHEAP = ("runs", "show", "plan", "env", "new", "unfinished")
"""Commands that need no finished run; ``test_documented_lines.py`` runs them all, by bash, in a root that has some."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the texts that the examples name."""
    made = tmp_path_factory.mktemp("texts")
    write_texts(made)
    return made


def cheap() -> list[Any]:
    """Whole commands of ``CHEAP``, each once; not those of the tutorial or of another table."""
    found = {each.words: each for each in COMMANDS if each.whole and each.words[0] == "repro" and ours(each.words)}
    return [pytest.param(each, id=f"{each}") for words, each in found.items() if words[1] in CHEAP]


@pytest.mark.parametrize("command", cheap())
def test_a_cheap_command_works(command: DocumentedCommand, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    if command.words[1] == "new":
        for written in folder.glob("my-run.*"):
            written.unlink()
    assert call(monkeypatch, *command.words[1:]) == 0
