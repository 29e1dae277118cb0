"""Starting a job where it is to run. A job is a program over files: it reads ``job.json``, writes into ``out``.

A launcher starts it, calls ``on_poll`` now and then, and returns when the job ended well; otherwise it raises the
Fault that the job's ``exit.json`` names.
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
    """A module to run, what it is to do, and the folder it writes into."""

    module: str
    config: Mapping[str, Any]
    inputs: Mapping[str, Path]
    out: Path
    site: Mapping[str, Any]
    ranks: int = 1
    distributed: bool = False
    """Started by torchrun, in ``ranks`` processes."""
    nodes: int = 1
    """Machines among which the processes are divided."""
    threads: int = 1
    pass_fds: tuple[int, ...] = field(default=())
    """Descriptors of locks that the job holds too, so that nobody enters while it still ends. They are of use on this
    machine only; elsewhere the job's name does what they do (``infra.launch.batch_queue``)."""
    gpus: tuple[str, ...] = ()
    """The GPUs that are its own; empty: those that CUDA finds."""

    @property
    def path(self) -> Path:
        """Where ``job.json`` is."""
        return self.out.absolute() / "job.json"

    @property
    def ranks_per_node(self) -> int:
        return self.ranks // self.nodes if self.distributed else 1

    def text(self) -> str:
        """What ``job.json`` says."""
        inputs = {name: str(folder.absolute()) for name, folder in self.inputs.items()}
        job = {"config": self.config, "inputs": inputs, "out": str(self.out.absolute()), "site": self.site}
        return json.dumps(job, indent=1)

    def write(self) -> Path:
        """Write ``job.json``; returns its path."""
        self.path.write_text(self.text())
        (self.out / EXIT).unlink(missing_ok=True)
        return self.path


class Launcher(Protocol):
    def run(self, job: JobSpec, on_poll: Callable[[], None]) -> None:
        """Run to the end; raises a Fault. An exception in the caller's thread ends the job first."""


def check_disk_space(folder: Path) -> None:
    """Raise OSError where nothing more can be written: there a job cannot say why it ended."""
    probe = folder / "probe.partial"
    try:
        probe.write_bytes(bytes(PROBE_BYTES))
    finally:
        probe.unlink(missing_ok=True)


def raise_for_exit(job: JobSpec, status: int, last_words: str) -> None:
    """Raise the Fault that ``exit.json`` names; without one the job was killed, crashed, or (OSError) had no space."""
    try:
        exit_ = json.loads((job.out / EXIT).read_text())
    except (OSError, ValueError):
        check_disk_space(job.out)
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        raise JobFailed(
            f"{job.module} {how} without saying why" + (f"; its last words: {last_words}" if last_words else "")
        ) from None
    if exit_["reason"] != "done":
        raise fault_for(exit_["reason"], exit_["message"])
