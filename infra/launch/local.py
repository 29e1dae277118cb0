"""Run jobs on this machine as process groups that never outlive the launcher, even if it gets SIGKILL."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from infra.launch.command import command, last_line, python_path, variables
from infra.launch.job import JobSpec, raise_for_exit
from infra.processes import signals
from infra.processes.children import die_with_parent, signal_group, stopped_below, terminate_group

POLL_SECONDS = 0.2
STOPPED_SECONDS = 5.0
"""Pause between two looks whether processes of the job are stopped."""


@dataclass
class LocalLauncher:
    """Runs a job in its own session and appends its output to ``<out>/job.log``."""

    say: Callable[[str], None] = lambda _: None

    def run(self, job: JobSpec, on_poll: Callable[[], None]) -> None:
        job.write()
        log = job.out / "job.log"
        with log.open("ab") as output:
            begin = output.tell()
            process = subprocess.Popen(
                command(job, sys.executable),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent(),
                pass_fds=job.pass_fds,
                env={**os.environ, "PYTHONPATH": python_path(), **variables(job)},
            )
        try:
            stopped = StoppedProcesses(process.pid, job.module, self.say)
            while process.poll() is None:
                signals.check()
                on_poll()
                stopped.look()
                time.sleep(POLL_SECONDS)
            on_poll()
        except BaseException:
            terminate_group(process)
            raise
        finally:
            signal_group(process, signal.SIGKILL)  # children of a killed leader; ranks end with their torchrun
        raise_for_exit(job, process.returncode, last_line(log, begin))


class StoppedProcesses:
    """Says when processes of a job are stopped: the job then neither goes on nor ends."""

    def __init__(self, pid: int, module: str, say: Callable[[str], None]) -> None:
        self._pid = pid
        self._module = module
        self._say = say
        self._said: list[int] = []
        self._next = time.monotonic() + STOPPED_SECONDS

    def look(self) -> None:
        """Say it once for each set of stopped processes; looks every ``STOPPED_SECONDS``."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + STOPPED_SECONDS
        stopped = stopped_below(self._pid)
        if stopped and stopped != self._said:
            pids = " ".join(map(str, stopped))
            self._say(f"{self._module} does not go on: process {pids} is stopped; `kill -CONT {pids}` continues it")
        self._said = stopped
