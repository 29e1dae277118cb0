"""The specification of a job and its end. A job is a program over files: it reads ``job.json`` and writes to ``out``.

A launcher starts it, calls ``on_poll`` periodically and returns when the job succeeds; otherwise it raises the Fault
named in the job's ``exit.json``.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from infra.errors import JobFailed, fault_for

EXIT = "exit.json"
PROBE_BYTES = 2**16


@dataclass(frozen=True)
class JobSpec:
    """A module to run, its configuration and inputs, and its output folder."""

    module: str
    config: Mapping[str, Any]
    inputs: Mapping[str, Path]
    out: Path
    site: Mapping[str, Any]
    ranks: int = 1
    distributed: bool = False
    """Start with torchrun, in ``ranks`` processes."""
    nodes: int = 1
    """Machines that share the processes evenly."""
    threads: int = 1
    pass_fds: tuple[int, ...] = field(default=())
    """File descriptors of locks that the job inherits, so that they stay locked until it has ended. For local jobs
    only; in a queue the job's name serves the same purpose (``infra.launch.batch_queue``)."""
    gpus: tuple[str, ...] = ()
    """The GPUs of this job; empty: all that CUDA finds."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Further environment variables of the job, which override those of the caller."""

    @property
    def path(self) -> Path:
        """The path of ``job.json``."""
        return self.out.absolute() / "job.json"

    @property
    def ranks_per_node(self) -> int:
        return self.ranks // self.nodes if self.distributed else 1

    def text(self) -> str:
        """The content of ``job.json``."""
        inputs = {name: str(folder.absolute()) for name, folder in self.inputs.items()}
        job = {"config": self.config, "inputs": inputs, "out": str(self.out.absolute()), "site": self.site}
        return json.dumps(job, indent=1)

    def write(self) -> None:
        """Write ``job.json``."""
        self.path.write_text(self.text())
        (self.out / EXIT).unlink(missing_ok=True)


class Launcher(Protocol):
    def run(self, job: JobSpec, on_poll: Callable[[], None]) -> None:
        """Run to the end; raises a Fault. Any exception stops the job before it propagates."""


def raise_for_exit(job: JobSpec, status: int, last_words: str) -> None:
    """Raise the Fault named in ``exit.json``. Without that file raise JobFailed, or OSError if the disk is full."""
    try:
        exit_ = json.loads((job.out / EXIT).read_text())
    except (OSError, ValueError):
        probe = job.out / "probe.partial"
        try:
            probe.write_bytes(bytes(PROBE_BYTES))  # fails on a full disk, where a job cannot write ``exit.json``
        finally:
            probe.unlink(missing_ok=True)
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        raise JobFailed(
            f"{job.module} {how} without saying why" + (f"; its last words: {last_words}" if last_words else "")
        ) from None
    if exit_["reason"] != "done":
        raise fault_for(exit_["reason"], exit_["message"])
