"""``python -m infra.service.supervised NAME``: one program of the service whose mark it carries, with all that it
starts.

Between the supervisor and the program: gives it its environment, waits for what it needs, dies with the supervisor, and
when the program has ended, however it ended, ends what it has started, so that the next one finds its port free.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from infra.processes import signals
from infra.processes.children import die_with_parent, follow_parent
from infra.service.health import wait_for
from infra.service.process_marks import end_all, folder_of, signal_all, tagged_pids, wait_until_none
from infra.service.programs import PROJECT_ROOT, command_of, environment_of, programs
from infra.service.settings import read

STARTED_SECONDS = 5.0
"""For what the program has started, to end before it and tell it how; a training writes a last checkpoint meanwhile."""
OWN_SECONDS = 3.0
STOP_SECONDS = STARTED_SECONDS + OWN_SECONDS + 2.0
"""How long the supervisor waits for all of it."""


def main(name: str) -> int:
    follow_parent()
    signals.install_handlers()
    folder = folder_of(os.environ)
    service = read(folder)
    program = next(each for each in programs(service) if each.name == name)
    end_all(lambda: tagged_pids(folder, name), OWN_SECONDS)  # a killed predecessor's
    if program.after:
        wait_for(program.after)
    process = subprocess.Popen(
        command_of(service, program, os.environ),
        cwd=PROJECT_ROOT,
        stdin=subprocess.DEVNULL,
        preexec_fn=die_with_parent(),
        env=environment_of(service, program, os.environ),
    )
    try:
        return process.wait()
    finally:
        _end(process, folder, name)


def _end(process: subprocess.Popen[bytes], folder: Path, name: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # asked once is enough: this goes on to its end
        signal.signal(number, signal.SIG_IGN)

    def others() -> set[int]:
        return tagged_pids(folder, name) - {process.pid}

    signal_all(others(), signal.SIGTERM)
    wait_until_none(others, STARTED_SECONDS)
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(OWN_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    end_all(others, 0.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
