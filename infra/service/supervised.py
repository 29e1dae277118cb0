"""``python -m infra.service.supervised NAME`` runs one program of the service that the environment's tag names.

The supervisor starts this wrapper. The wrapper sets the program's environment, waits for the server that the program
needs, and ends with the supervisor. When the program ends, the wrapper ends all its processes, which frees its port.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from infra.processes import signals
from infra.processes.children import GRACE_SECONDS, PROJECT_ROOT, die_with_parent, follow_parent
from infra.servers.loopback import healthy
from infra.servers.service_settings import read
from infra.service.process_tags import end_all, folder_of, signal_all, tagged_pids, wait_until_none
from infra.service.programs import environment_of, programs

STARTED_SECONDS = GRACE_SECONDS + 5.0
"""How long the child processes of a worker may take to end and report; a training writes its last checkpoint."""
OWN_SECONDS = 3.0
"""How long the program itself may take to end."""
POLL_SECONDS = 0.5
STOP_SECONDS = STARTED_SECONDS + OWN_SECONDS + 2.0
"""How long the supervisor waits for this wrapper."""


def main(name: str) -> int:
    follow_parent()
    signals.install_handlers()
    folder = folder_of(os.environ)
    service = read(folder)
    program = next(program for program in programs(service) if program.name == name)
    end_all(lambda: tagged_pids(folder, name), OWN_SECONDS)  # left by a killed predecessor
    while program.is_worker and not healthy(f"{service.prefect}/health"):
        signals.wait(POLL_SECONDS)
    process = subprocess.Popen(
        program.command,
        cwd=PROJECT_ROOT,
        stdin=subprocess.DEVNULL,
        preexec_fn=die_with_parent(),
        env=environment_of(service, program, os.environ),
    )
    try:
        return process.wait()
    finally:
        _end(process, folder, name, STARTED_SECONDS if program.is_worker else OWN_SECONDS)


def _end(process: subprocess.Popen[bytes], folder: Path, name: str, seconds: float) -> None:
    """End the program; its child processes first, which get so many ``seconds``."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a second signal must not interrupt this
        signal.signal(number, signal.SIG_IGN)

    asked = set[int]()

    def others() -> set[int]:
        found = tagged_pids(folder, name) - {process.pid}
        signal_all(found - asked, signal.SIGTERM)  # a worker may start another run meanwhile
        asked.update(found)
        return found

    wait_until_none(others, seconds)
    end_all(lambda: {process.pid} if process.poll() is None else set(), OWN_SECONDS)
    end_all(others, 0.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
