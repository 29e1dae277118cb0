"""Runs jobs on this machine as process groups that never outlive the launcher, even if it gets SIGKILL."""

import os
import signal
import sys
import time
from collections.abc import Callable

from infra.launch.job import JobSpec, command, raise_for_exit, variables
from infra.processes import signals
from infra.processes.children import last_line, python_path, signal_group, start, terminate_group

POLL_SECONDS = 0.2


class LocalLauncher:
    """Runs a job in its own session and appends its output to ``<out>/job.log``."""

    def run(self, job: JobSpec, on_poll: Callable[[], None]) -> None:
        job.write()
        log = job.out / "job.log"
        with log.open("ab") as output:
            begin = output.tell()
            environment = {**os.environ, "PYTHONPATH": python_path(os.environ), **variables(job)}
            process = start(command(job, sys.executable), output, environment, pass_fds=job.pass_fds)
        try:
            while process.poll() is None:
                signals.check()
                on_poll()
                time.sleep(POLL_SECONDS)
            on_poll()
        except BaseException:
            terminate_group(process)
            raise
        finally:
            signal_group(process, signal.SIGKILL)  # children of a killed leader; ranks end with torchrun
        raise_for_exit(job, process.returncode, last_line(log, begin))
