"""Jobs that a queue runs on other machines: submitted, watched, taken up again, ended with their launcher.

What a queue must be able to do is ``BatchQueue``; SLURM and Kubernetes are two. ``out``, the inputs and this project
must lie on a disk that the nodes share, at the same paths: nothing is copied, and the job is followed through its
files.

A kernel's lock does not reach other machines. In its place a job bears the name of its folder. A launcher that finds
one of that name, left by one that was killed, goes on with it if it is the very same job and ends it first otherwise.
"""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from infra.errors import Fault, JobFailed, NetworkFault
from infra.launch.command import last_line
from infra.launch.job import EXIT, JobSpec, raise_for_exit
from infra.processes import signals
from infra.processes.children import GRACE_SECONDS

POLL_SECONDS = 0.2
FINAL_REASONS = ("bad_configuration", "bad_data", "diverged", "done", "no_space", "out_of_memory")
"""Reasons of a job that are true whatever the queue says of its end."""


@dataclass(frozen=True)
class QueueStatus:
    """What a queue says of a job: how far it is, in which words, and at the end the fault that only a queue knows."""

    phase: Literal["waits", "runs", "ends", "ended"]
    """``ends``: it no longer works, but is not gone."""
    words: str
    fault: Fault | None = None
    status: int = 1


class BatchQueue(Protocol):
    """Somebody who runs jobs elsewhere. Each call raises NetworkFault where nobody answers."""

    def is_same_spec(self, job: JobSpec) -> bool:
        """Whether what describes the job to the queue lies in ``out`` as ``submit`` would write it."""

    def find(self, job: JobSpec) -> str:
        """The job of this name that has not ended yet; "" where there is none."""

    def submit(self, job: JobSpec) -> str:
        """Hand the job over; gives the name to ask by. Raises BadConfiguration where the queue refuses it."""

    def poll(self, name: str) -> QueueStatus: ...

    def cancel(self, name: str) -> None:
        """Have the job ended, its processes asked before they are killed; does not wait."""

    def clear(self, name: str) -> None:
        """Remove what serves nobody once the job has ended."""


@dataclass
class QueueLauncher:
    """Runs a job by a queue, its output in ``<out>/job.log``, where the nodes write it."""

    queue: BatchQueue
    poll_seconds: float = 5.0
    """Between two questions; many ask the same queue."""
    patience_seconds: float = 600.0
    """How long a queue may not answer."""
    lag_seconds: float = 15.0
    """How long after its end a job's files may still be on their way through the shared disk."""
    end_seconds: float = GRACE_SECONDS
    """How long the end of a cancelled job is waited for."""
    say: Callable[[str], None] = lambda _: None

    def run(self, job: JobSpec, on_poll: Callable[[], None]) -> None:
        log, same = job.out / "job.log", _is_same_spec(job) and self.queue.is_same_spec(job)
        begin = log.stat().st_size if log.exists() else 0
        name = self.queue.find(job)
        try:
            if name and not (same and self.queue.poll(name).phase in ("waits", "runs")):
                self.say(f"{name} still writes into {job.out}; it is ended first")
                if not self._end(name):
                    raise JobFailed(f"{name} of an earlier try does not end, and writes into {job.out}")
                name = ""
            if name:
                self.say(f"{name} was left running by an earlier try; this one goes on with it")
            else:
                job.write()
                name = self.queue.submit(job)
                self.say(f"{job.module} was submitted as {name}")
            answer = self._watch(name, on_poll)
        except BaseException:
            if name:
                self._end(name)
            raise
        self.queue.clear(name)
        reason = self._reason(job)
        on_poll()
        if answer.fault and reason not in FINAL_REASONS:
            raise answer.fault
        last = last_line(log, begin)
        seen = "" if log.exists() else f"no log at {log}: do the nodes share that disk?"
        raise_for_exit(job, answer.status, last or seen)

    def _watch(self, name: str, on_poll: Callable[[], None]) -> QueueStatus:
        """Poll until the job has ended."""
        told, asked, answered = "", float("-inf"), time.monotonic()
        while True:
            signals.check()
            on_poll()
            if time.monotonic() - asked >= self.poll_seconds:
                asked = time.monotonic()
                try:
                    answer = self.queue.poll(name)
                except NetworkFault:
                    if time.monotonic() - answered > self.patience_seconds:
                        raise
                else:
                    answered = time.monotonic()
                    if answer.phase == "ended":
                        return answer
                    if answer.words != told:
                        self.say(f"{name}: {answer.words}")
                    told = answer.words
            time.sleep(min(POLL_SECONDS, self.poll_seconds))

    def _end(self, name: str) -> bool:
        """Cancel and wait; whether it ended. What did not, or at a queue that is away, is left to who comes next."""
        try:
            self.queue.cancel(name)
            until = time.monotonic() + self.end_seconds
            while self.queue.poll(name).phase != "ended":
                if time.monotonic() > until:
                    self.say(f"{name} was cancelled, but has not ended after {self.end_seconds:.0f} s")
                    return False
                time.sleep(min(1.0, self.poll_seconds))
            self.queue.clear(name)
        except Fault as fault:
            self.say(f"{name} may still run: {fault}")
            return False
        return True

    def _reason(self, job: JobSpec) -> str:
        """The reason in ``exit.json``, waited for a little; "" where there is none."""
        until = time.monotonic() + self.lag_seconds
        while True:
            try:
                return str(json.loads((job.out / EXIT).read_text())["reason"])
            except (OSError, ValueError, KeyError):
                if time.monotonic() > until:
                    return ""
                time.sleep(POLL_SECONDS)


def job_name(job: JobSpec) -> str:
    """The job's name in a queue: one folder, one name. Lower case, at most 40 characters, fit for a host name."""
    digest = hashlib.sha256(str(job.out.absolute()).encode()).hexdigest()[:12]
    return f"repro-{job.module.rpartition('.')[2].replace('_', '-')[:20].lower()}-{digest}"


def _is_same_spec(job: JobSpec) -> bool:
    try:
        return job.path.read_text() == job.text()
    except OSError:
        return False
