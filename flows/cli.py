"""Runs the command line ``repro``. Results go to stdout, progress and messages to stderr.

Exit codes: 0 done, 1 a stage or command failed, 2 wrong usage or configuration, 130 interrupted, 143 ended by SIGTERM.
"""

import ast
import contextlib
import errno
import logging
import os
import signal
import sys
import traceback
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from cyclopts import App, Argument, CycloptsError, Group, MissingArgumentError, Parameter

from flows import __version__
from flows.views.standard_streams import discard_stdout, prepare_streams
from infra.errors import BadConfiguration, Fault
from infra.guards.shown_text import shown_lines
from infra.processes import signals
from infra.processes.compute import thread_waiting

HELP = """Reproduce "Attention Is All You Need": one cached, retryable DAG from archives to a registered model.

Add --debug anywhere to see the traceback of an error.

For example:

repro run demo            run the whole pipeline on the embedded corpus

repro plan multi30k-ende  show which stages a run would execute, and why

repro translate --model demo@candidate < in.txt > out.txt

repro help run            show the options of a command, with examples"""
GROUPS = {
    "Runs": ("new", "plan", "run", "stop", "show", "paper", "sweep", "decide"),
    "Look": ("help", "logs", "history", "trace", "filters", "compare", "score", "gap", "check", "site"),
    "Models": ("models", "promote", "delete", "translate", "serve", "export"),
    "Service": ("up", "down", "status", "deploy", "doctor"),
    "Storage": ("verify", "gc", "backup"),
}
"""The commands, as --help groups them."""
FUNCTIONS = {"help": "flows.cli:help_command", "promote": "flows.commands.models:promote"}
"""Places of commands that are not a function NAME in a module NAME."""
COMMANDS = {name: FUNCTIONS.get(name, f"flows.commands.{name}:{name}") for group in GROUPS.values() for name in group}
"""The place of each command. Only the called command is imported."""
OTHER_WORDS = {
    "cancel": "stop",
    "eval": "score",
    "evaluate": "score",
    "kill": "stop",
    "list": "show",
    "log": "logs",
    "ls": "show",
    "resume": "run",
    "runs": "show",
    "start": "run",
    "tail": "logs",
    "train": "run",
    "version": "models",
    "versions": "models",
}
"""Other words that users type for a command."""
REMOVAL_WORDS = ("rm", "remove", "del", "clean", "prune", "uninstall")
DESTROYING = ("delete", "gc", "down", "stop", "backup")
"""Commands that are never suggested for a similar word, since they delete or stop something."""
SIMILAR = 0.7
"""Similarity of a suggested command: ``traslate`` suggests only translate, ``test`` nothing."""
RESUMABLE = ("run", "paper", "sweep", "decide")
"""Commands that resume from their finished stages if repeated after an interrupt."""
UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)


def application(*, listing: bool = False) -> App:
    """Build the parser of the command line. With ``listing`` it can list all commands, but not print their help."""
    app = App(
        name="repro",
        version=_version,
        help=HELP,
        help_format="plaintext",
        default_parameter=Parameter(negative=()),  # no --no-OPTION
        suppress_keyboard_interrupt=False,  # handled in main
    )
    for title, names in GROUPS.items():
        group = Group.create_ordered(title)
        for name in names:
            path = COMMANDS[name]
            # A given help would replace the whole docstring, so cyclopts reads the command's own help.
            app.command(path, name=name, group=group, help=_docstring(path).partition("\n\n")[0] if listing else None)
    app.register_install_completion_command(
        add_to_startup=False, help="Install completion of commands, runs, stages and fields."
    )
    return app


def _docstring(path: str) -> str:
    """Read a command's docstring from its source: to import every command takes too long."""
    module, _, function = path.partition(":")
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin
    tree = ast.parse(Path(spec.origin).read_text())
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function)
    return ast.get_docstring(next(functions)) or ""


def _version() -> str:
    """Return the version, and in a checkout the commit."""
    from infra.tracking.provenance import commit

    return f"{__version__} ({made_from})" if (made_from := commit()) else __version__


class _WarningFormatter(logging.Formatter):
    """Shows control characters as escapes: a warning may quote a tag or an error of another program."""

    def format(self, record: logging.LogRecord) -> str:
        return shown_lines(super().format(record))


def main() -> None:
    """Entry point: run the command, and turn any error into one message and an exit code."""
    prepare_streams()
    os.environ.update(thread_waiting(os.environ))  # for torch in this process and its children
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    debug = "--debug" in sys.argv
    if logging.lastResort:  # prints warnings if a command sets up no logging
        logging.lastResort.setFormatter(_WarningFormatter("repro: %(message)s"))
    # A shell requests completions by ``__complete``.
    if arguments and not arguments[0].startswith(("-", "_")) and arguments[0] not in COMMANDS:
        _say(_unknown_command(arguments[0]))
        sys.exit(2)
    if arguments[:1] in (["run"], ["new"]) and not {"--help", "-h"} & {*arguments}:
        # Before slow imports; the first start also compiles them and makes the databases.
        spec = find_spec(f"flows.commands.{arguments[0]}")
        is_compiled = spec is not None and Path(spec.cached or "").is_file()
        about = "" if is_compiled else " (the first time up to a minute)"
        print(f"repro {arguments[0]}: starting ...{about}", file=sys.stderr, flush=True)
    # SIGTERM raises an exception, so that context managers end jobs and servers.
    signals.install_handlers()
    try:
        try:
            app = application(listing=not arguments or arguments[0] in ("--help", "-h"))
            app(arguments, exit_on_error=False, print_error=False)
        except SystemExit as end:  # of --help, of SIGTERM, and of cyclopts after a command
            sys.stdout.flush()  # raises Fault before the exit code is decided
            if end.code == 128 + signal.SIGTERM:
                _say_interrupted(arguments[:1])
            raise
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        if debug and isinstance(error, Exception):
            traceback.print_exc()
        sys.exit(_exit_code_after(error, arguments[:1]))
    sys.exit(0)


def help_command(
    command: Annotated[str, Parameter(completer=lambda _: [*COMMANDS], help="a command, for example run")] = "", /
) -> None:
    """Show the commands, or one command's options and examples.

    Example: repro help run
    """
    if command and command not in COMMANDS:
        raise BadConfiguration(_unknown_command(command))
    application(listing=not command)([*filter(None, [command]), "--help"])


def _unknown_command(word: str) -> str:
    """Write the message about an unknown command, with the right one if the meaning is clear."""
    if word in REMOVAL_WORDS:
        return (
            f"unknown command {word!r}: `repro delete NAME/VERSION` removes a model version, after a question; "
            "`repro gc` lists what no run needs, and removes it with --delete"
        )
    import difflib

    from flows.runs.unknown_names import did_you_mean

    safe = [name for name in COMMANDS if name not in DESTROYING]
    near = difflib.get_close_matches(word, [*safe, *OTHER_WORDS], n=1, cutoff=0.75)
    if meant := OTHER_WORDS.get("".join(near)):
        return f"unknown command {word!r}: use `repro {meant}`; `repro help {meant}` shows how"
    return f"unknown command {word!r}{did_you_mean(word, safe, SIMILAR) or ':'} `repro help` lists all"


def _what_is_missing(command: str, argument: Argument) -> str:
    """Write the message about a missing argument, with its meaning and an example."""
    name = argument.name.lstrip("-").upper() if argument.field_info.is_positional else argument.name
    example = next(line for line in _docstring(COMMANDS[command]).splitlines() if f"repro {command} " in line)
    meaning = f": {argument.parameter.help}" if argument.parameter.help else ""
    return f"{name} is missing{meaning}. For example: {example.strip().removeprefix('Example: ')}"


def _say_interrupted(command: list[str]) -> None:
    is_resumable = command in [[name] for name in RESUMABLE]
    _say(f"interrupted{'; finished stages are kept. Repeat the same command to resume' if is_resumable else ''}")


def _exit_code_after(error: Exception | KeyboardInterrupt, command: list[str]) -> int:
    """Say what ended the command, and return its exit code."""
    if isinstance(error, KeyboardInterrupt):
        _say_interrupted(command)
        return 130
    if isinstance(error, BrokenPipeError):
        # The reader closed stdout. Without this, the flush at exit would fail again with a traceback.
        discard_stdout()
        return 1
    if isinstance(error, MissingArgumentError) and not error.keyword and error.argument:
        _say(_what_is_missing(command[0], error.argument))
        return 2
    if isinstance(error, CycloptsError | BadConfiguration):
        _say(f"{error}")
        return 2
    if isinstance(error, OSError) and error.errno in UNWRITABLE and error.filename:
        from infra.site import Site

        other = "name another place"
        with contextlib.suppress(BadConfiguration):
            site = Site.named()
            if Path(error.filename).absolute().is_relative_to(site.root.absolute()):
                variable = "REPRO_CACHE" if site.remote else "REPRO_ROOT"
                other = f"set {variable} to a folder that is (plan, translate and a run without work only read)"
        _say(f"{error.filename} cannot be opened or written: {error.strerror}; make it writable, or {other}")
        return 1
    from flows.runner.outcome import StageFailed

    known = isinstance(error, Fault | StageFailed)
    _say(f"{error}" if known else f"{type(error).__name__}: {error} (add --debug to see the traceback)")
    return 1


def _say(message: str) -> None:
    from flows.views.terminal import say  # loads modules that a list of commands does not need

    say(message)
