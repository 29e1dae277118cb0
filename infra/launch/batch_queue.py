"""Runs jobs through a batch queue on other machines: submits, watches, resumes watching, cancels.

SLURM, Kubernetes and one machine over ssh implement ``BatchQueue``. SLURM and Kubernetes need ``out``, the inputs and
this project at the same paths on a disk that the nodes share; ssh copies them. The launcher reads the job's files.

A kernel lock does not reach other machines, so a job's name in the queue derives from its folder. If a killed launcher
left a job of that name, the next launcher watches it if it is the same job and cancels it otherwise.
"""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from infra.errors import Fault, JobFailed, NetworkFault
from infra.launch.job import EXIT, JobSpec, raise_for_exit
from infra.processes import signals
from infra.processes.children import GRACE_SECONDS, last_line

POLL_SECONDS = 0.2
FINAL_REASONS = ("bad_configuration", "bad_data", "diverged", "done", "no_space", "out_of_memory")
"""Reasons in ``exit.json`` that override the queue's report of the job's end."""
LAST_SECONDS = 10.0
"""How long the last copy after an interrupt may take; the next launcher copies the rest."""


@dataclass(frozen=True)
class QueueStatus:
    """A job's phase, the queue's description of it and, at the end, a fault that only the queue can report."""

    phase: Literal["pending", "running", "stopping", "ended"]
    """``stopping``: the job's processes are ending, but still exist."""
    description: str
    fault: Fault | None = None
    status: int = 1


class BatchQueue(Protocol):
    """A system that runs jobs elsewhere. Each call raises NetworkFault if the system does not answer."""

    file: str
    """The name of the file in ``out`` with the description that was submitted; its first line names the place."""

    def description(self, job: JobSpec) -> str:
        """Return the text to submit: a batch script or manifests. Raises BadConfiguration for an impossible job."""

    def find(self, job: JobSpec) -> str:
        """Return the name of this job in the queue if it is unfinished, otherwise ""."""

    def submit(self, job: JobSpec) -> str:
        """Submit the job's file; return the name for the calls below. Raises BadConfiguration if it is refused."""

    def poll(self, name: str) -> QueueStatus: ...

    def cancel(self, name: str) -> None:
        """Request the job's end without waiting; its processes get SIGTERM, then SIGKILL."""

    def clear(self, name: str) -> None:
        """Remove resources that the ended job no longer needs."""


@dataclass
class QueueLauncher:
    """Runs a job through a queue; the nodes write its output to ``<out>/job.log``."""

    queue: BatchQueue
    poll_seconds: float = 5.0
    """Pause between requests, because many clients share one queue."""
    patience_seconds: float = 600.0
    """How long a queue may be unreachable."""
    lag_seconds: float = 15.0
    """How long the shared disk may take to show the files of an ended job."""
    say: Callable[[str], None] = lambda _: None
    fetch: Callable[[JobSpec, float], None] = lambda *_: None
    """Copies the job's output to ``out`` if the disk is not shared, within the given seconds (0: no limit)."""

    def run(self, job: JobSpec, on_poll: Callable[[], None]) -> None:
        log = job.out / "job.log"
        described = job.out / self.queue.file
        text = self.queue.description(job)
        last_text = described.read_text() if described.exists() else ""
        same = job.path.exists() and job.path.read_text() == job.text() and last_text == text
        began_there = last_text.partition("\n")[0] == text.partition("\n")[0]
        begin = log.stat().st_size if log.exists() else 0
        name = self.queue.find(job)
        try:
            if name and not (same and self.queue.poll(name).phase in ("pending", "running")):
                self.say(f"{name} still writes into {job.out}; cancelling it first")
                if not self.end(name, job if began_there else None):
                    raise JobFailed(f"{name}, of an earlier attempt, does not end and still writes into {job.out}")
                name = ""
            if name:
                self.say(f"{name} is still running from an earlier attempt; continuing with it")
            else:
                if began_there:
                    self.fetch(job, 0.0)  # output that the job wrote after its launcher was killed
                job.write()
                described.write_text(text)
                name = self.queue.submit(job)
                self.say(f"{job.module} was submitted as {name}")
            last = self._watch(name, job, on_poll)
        except BaseException:
            if name:
                self.end(name, job)
            raise
        self.queue.clear(name)
        reason = self._reason(job)
        on_poll()
        if last.fault and reason not in FINAL_REASONS:
            raise last.fault
        missing = "" if log.exists() else f"no log at {log}: do the nodes share that disk?"
        raise_for_exit(job, last.status, last_line(log, begin) or missing)

    def _watch(self, name: str, job: JobSpec, on_poll: Callable[[], None]) -> QueueStatus:
        """Poll until the job has ended."""
        shown = ""
        requested = float("-inf")
        answered = time.monotonic()
        while True:
            signals.check()
            on_poll()
            if time.monotonic() - requested >= self.poll_seconds:
                requested = time.monotonic()
                try:
                    status = self.queue.poll(name)
                    self.fetch(job, 0.0)
                except NetworkFault as fault:
                    if time.monotonic() - answered > self.patience_seconds:
                        raise
                    if shown != "away":
                        self.say(f"{fault}; asking again")
                    shown = "away"
                else:
                    answered = time.monotonic()
                    if status.phase == "ended":
                        return status
                    if status.description != shown:
                        self.say(f"{name}: {status.description}")
                    shown = status.description
            time.sleep(min(POLL_SECONDS, self.poll_seconds))

    def end(self, name: str, fetched: JobSpec | None = None) -> bool:
        """Cancel the job, wait, and fetch its output; return whether it ended. If not, the next launcher handles it."""
        try:
            self.queue.cancel(name)
            deadline = time.monotonic() + GRACE_SECONDS
            while self.queue.poll(name).phase != "ended":
                if time.monotonic() > deadline:
                    self.say(f"{name} was cancelled, but has not ended after {GRACE_SECONDS:.0f} s")
                    return False
                time.sleep(min(1.0, self.poll_seconds))
            if fetched:
                self.fetch(fetched, LAST_SECONDS)
            self.queue.clear(name)
        except Fault as fault:
            self.say(f"{name} may still be running: {fault}")
            return False
        return True

    def _reason(self, job: JobSpec) -> str:
        """Return the reason in ``exit.json``, after at most ``lag_seconds``; "" if there is none."""
        deadline = time.monotonic() + self.lag_seconds
        while True:
            try:
                return str(json.loads((job.out / EXIT).read_text())["reason"])
            except (OSError, ValueError, KeyError):
                if time.monotonic() > deadline:
                    return ""
                time.sleep(POLL_SECONDS)


def job_name(job: JobSpec) -> str:
    """Return a queue name for the job's folder: lower case, at most 40 characters, valid as a host name."""
    digest = hashlib.sha256(str(job.out.absolute()).encode()).hexdigest()[:12]
    return f"repro-{job.module.rpartition('.')[2].replace('_', '-')[:20].lower()}-{digest}"
