"""The command line ``repro``. Results go to stdout, everything said along the way to stderr.

Exit codes: 0 done, 1 a stage or command failed, 2 wrong usage or configuration, 130 interrupted.
"""

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from cyclopts import App, CycloptsError

from flows import __version__
from flows.commands.attention import attention
from flows.commands.compare import compare
from flows.commands.deploy import deploy
from flows.commands.down import down
from flows.commands.explain_filters import explain_filters
from flows.commands.export import export
from flows.commands.gc import gc
from flows.commands.models import models, promote
from flows.commands.paper import paper
from flows.commands.run import plan_command, run_command, runs
from flows.commands.serve import serve
from flows.commands.status import status
from flows.commands.trace import trace
from flows.commands.translate import translate
from flows.commands.unfinished import unfinished
from flows.commands.up import up
from flows.commands.verify import verify
from flows.runner.run import StageFailed
from flows.views.terminal import say
from infra.errors import BadConfiguration, Fault
from infra.processes import signals

app = App(
    name="repro",
    version=__version__,
    help="""Reproduce "Attention Is All You Need": one cached, retryable DAG from archives to a registered model.

    For example:

    repro run demo            the whole story on the embedded corpus

    repro plan multi30k-ende  what a run would do, and why

    repro translate --model demo@candidate < in.txt > out.txt

    --debug, at any place, shows the traceback of a failure.""",
    help_format="plaintext",
    suppress_keyboard_interrupt=False,  # answered in main
)

COMMANDS: dict[str, Callable[..., None]] = {
    "runs": runs,
    "run": run_command,
    "plan": plan_command,
    "unfinished": unfinished,
    "trace": trace,
    "explain-filters": explain_filters,
    "paper": paper,
    "translate": translate,
    "serve": serve,
    "attention": attention,
    "compare": compare,
    "export": export,
    "models": models,
    "deploy": deploy,
    "promote": promote,
    "verify": verify,
    "gc": gc,
    "up": up,
    "down": down,
    "status": status,
}
RESUMABLE = ("run", "paper")
"""Commands that, interrupted and called again, go on from what they had finished."""
for name, command in COMMANDS.items():
    app.command(command, name=name)


def main() -> None:
    """Entry point: one clear sentence and the right exit code for whatever goes wrong."""
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    debug = "--debug" in sys.argv
    resumable = arguments[:1] in [[name] for name in RESUMABLE]
    sys.exit(_exit_code_of(lambda: app(arguments, exit_on_error=False, print_error=False), debug, resumable))


def _exit_code_of(command: Callable[[], Any], debug: bool, resumable: bool) -> int:
    # What has to be ended in order (jobs, a server) is ended by the exception on its way out.
    signals.install_handlers()
    try:
        command()
        return 0
    except KeyboardInterrupt:
        kept = "; what was finished is kept, and the same command goes on from there" if resumable else ""
        say(f"interrupted{kept}")
        return 130
    except BrokenPipeError:
        # Whoever read has left: what is still buffered would fail again at the end, and say so.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if debug:
            traceback.print_exc()
        if isinstance(error, CycloptsError | BadConfiguration) and not isinstance(error, StageFailed):
            say(f"{error}")
            return 2
        known = isinstance(error, Fault | StageFailed)
        say(f"{error}" if known else f"{type(error).__name__}: {error} (--debug shows where)")
        return 1
