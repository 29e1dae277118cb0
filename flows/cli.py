"""The command line ``repro``. Results go to stdout, progress and messages to stderr.

Exit codes: 0 done, 1 a stage or command failed, 2 wrong usage or configuration, 130 interrupted.
"""

import errno
import sys
import traceback
from collections.abc import Callable
from typing import Any

from cyclopts import App, CycloptsError

from flows import __version__
from flows.commands.adopt import adopt
from flows.commands.attention import attention
from flows.commands.compare import compare
from flows.commands.deploy import deploy
from flows.commands.down import down
from flows.commands.explain_filters import explain_filters
from flows.commands.export import export
from flows.commands.gc import gc
from flows.commands.ls import ls, path
from flows.commands.models import models, promote
from flows.commands.paper import paper
from flows.commands.run import plan_command, run_command, runs
from flows.commands.serve import serve
from flows.commands.sign import sign
from flows.commands.status import status
from flows.commands.sweep import sweep
from flows.commands.trace import trace
from flows.commands.translate import translate
from flows.commands.unfinished import unfinished
from flows.commands.up import up
from flows.commands.verify import verify
from flows.runner.outcome import StageFailed
from flows.views.standard_streams import discard_stdout, flush_stdout, prepare_streams
from flows.views.terminal import say
from infra.errors import BadConfiguration, Fault
from infra.processes import signals

app = App(
    name="repro",
    version=__version__,
    help="""Reproduce "Attention Is All You Need": one cached, retryable DAG from archives to a registered model.

    For example:

    repro run demo            run the whole pipeline on the embedded corpus

    repro plan multi30k-ende  show which stages a run would execute, and why

    repro translate --model demo@candidate < in.txt > out.txt

    Add --debug anywhere to see the traceback of an error.""",
    help_format="plaintext",
    suppress_keyboard_interrupt=False,  # handled in main
)

COMMANDS: dict[str, Callable[..., None]] = {
    "runs": runs,
    "run": run_command,
    "plan": plan_command,
    "unfinished": unfinished,
    "trace": trace,
    "explain-filters": explain_filters,
    "paper": paper,
    "sweep": sweep,
    "translate": translate,
    "serve": serve,
    "attention": attention,
    "compare": compare,
    "export": export,
    "adopt": adopt,
    "models": models,
    "deploy": deploy,
    "promote": promote,
    "ls": ls,
    "path": path,
    "sign": sign,
    "verify": verify,
    "gc": gc,
    "up": up,
    "down": down,
    "status": status,
}
RESUMABLE = ("run", "paper", "sweep")
"""Commands that resume from their finished stages when they are repeated after an interrupt."""
UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)
for name, command in COMMANDS.items():
    app.command(command, name=name)


def main() -> None:
    """Entry point: run the command, and turn any error into one message and an exit code."""
    prepare_streams()
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    debug = "--debug" in sys.argv
    resumable = arguments[:1] in [[name] for name in RESUMABLE]
    sys.exit(_exit_code_of(lambda: app(arguments, exit_on_error=False, print_error=False), debug, resumable))


def _exit_code_of(command: Callable[[], Any], debug: bool, resumable: bool) -> int:
    # SIGTERM raises an exception, so that jobs and servers are ended by the context managers it passes through.
    signals.install_handlers()
    try:
        try:
            command()
        except SystemExit:  # of --help, and of cyclopts after a command
            flush_stdout()
            raise
        flush_stdout()
        return 0
    except KeyboardInterrupt:
        hint = "; finished stages are kept. Repeat the same command to resume" if resumable else ""
        say(f"interrupted{hint}")
        return 130
    except BrokenPipeError:
        # The reader of stdout closed it. Without this, flushing the rest at exit would fail again with a traceback.
        discard_stdout()
        return 1
    except Exception as error:
        if debug:
            traceback.print_exc()
        if isinstance(error, CycloptsError | BadConfiguration) and not isinstance(error, StageFailed):
            say(f"{error}")
            return 2
        if isinstance(error, OSError) and error.errno in UNWRITABLE and error.filename:
            say(
                f"{error.filename} cannot be opened or written: {error.strerror}; make it writable, or set REPRO_ROOT"
                " to a folder that is (plan, translate and a run without work only read)"
            )
            return 1
        known = isinstance(error, Fault | StageFailed)
        say(f"{error}" if known else f"{type(error).__name__}: {error} (add --debug to see the traceback)")
        return 1
