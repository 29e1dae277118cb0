"""``repro`` as a program that starts at once: a process has imported everything, and each command is a fork of it.

A test of hundreds of commands spends its time on them, not on imports. Each command is ``flows.cli.main`` with the
caller's words, folder, environment and streams, and ends with its own exit code. Jobs are forks too, and a run needs
no Prefect server, which other tests start; every built-in run is small (``small_world``).
"""

import contextlib
import importlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX) as warm:
    warm.connect({address!r})
    words = {{"words": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}
    socket.send_fds(warm, [json.dumps(words).encode()], [0, 1, 2])
    process = int(warm.recv(20))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(process, number))
    sys.exit(int(warm.recv(20) or b"1"))
"""


def write_client(path: Path, address: Path) -> None:
    """Write the program that asks the warm process."""
    path.write_text(CLIENT.format(python=sys.executable, address=f"{address}"))
    path.chmod(0o755)


def start(address: Path, variables: dict[str, str]) -> subprocess.Popen[str]:
    """Start the warm process; it is ready at once, as clients wait."""
    environment = os.environ | variables
    process = subprocess.Popen([sys.executable, __file__, f"{address}"], env=environment, text=True, stdout=-1)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def load() -> None:
    """Import what commands need."""
    import mlflow.pyfunc  # noqa: F401
    import torch  # noqa: F401

    from flows.cli import COMMANDS
    from tasks.engine import jobs

    for path in COMMANDS.values():
        importlib.import_module(path.partition(":")[0])
    jobs.LAUNCHERS["local"] = ForkLauncher


def run_without_prefect() -> None:
    """Put functions in place of Prefect's flows, and no server."""
    from flows.orchestration import dispatch
    from flows.runner.paper import PaperResults, ResolvedPaper, RowsFailed, run_rows, write_pages
    from flows.tuning.sweep import run_sweep
    from flows.views.terminal import say
    from infra.site import Site

    def paper(resolved: ResolvedPaper) -> PaperResults:
        found = run_rows(resolved, run_small, say)
        write_pages(found, Site.named(resolved.request.site).root)
        if found.failed:
            raise RowsFailed(found)
        return found

    flows: Any = ModuleType("flows.orchestration.prefect_flows")
    flows.run_with_prefect = run_small
    flows.paper_with_prefect = paper
    flows.sweep_with_prefect = lambda resolved: run_sweep(resolved, run_small, say)
    sys.modules[flows.__name__] = flows
    dispatch._ensure_server = lambda site: dispatch.configure_libraries(site.root)


def serve(address: str) -> list[str]:
    """Fork for each client; returns its words in the fork that is to execute them."""
    with socket.socket(socket.AF_UNIX) as here:
        here.bind(address)
        here.listen()
        print("ready", flush=True)
        while True:
            client, _ = here.accept()
            request, streams, *_ = socket.recv_fds(client, 1 << 20, 3)
            if os.fork() == 0:
                if (command := os.fork()) == 0:
                    break
                client.sendall(f"{command:<20}".encode())
                _, status = os.waitpid(command, 0)
                with contextlib.suppress(OSError):
                    client.sendall(f"{os.waitstatus_to_exitcode(status) % 256}".encode())
                os._exit(0)
            client.close()
            for stream in streams:
                os.close(stream)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
    client.close()
    asked = json.loads(request)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    return asked["words"]


if __name__ == "__main__":
    sys.path[:] = [f"{Path(__file__).parents[2]}", *sys.path]
    from small_pipeline import ForkLauncher, run_small

    load()
    sys.argv = ["repro", *serve(sys.argv[1])]
    if sys.argv[1:2] in (["run"], ["paper"], ["sweep"]):
        run_without_prefect()
    from flows.cli import main

    main()
