"""Specifies a job, builds its command, and reads its end. A job reads ``job.json`` and writes to ``out``."""

import json
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from infra.errors import BadConfiguration, JobFailed, fault_for
from infra.processes.children import SAFE_PATH
from infra.processes.compute import thread_waiting

EXIT = "exit.json"
SCRIPT = "job.sh"
"""The script that starts a job over ssh or in SLURM."""
PROBE_BYTES = 2**16
KILLED_RANK = re.compile(r"Signal (\d+) \(SIG\w+\) received by PID")
"""Matches torchrun's last line about a process that a signal ended."""


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
    """Whether torchrun starts ``ranks`` processes."""
    nodes: int = 1
    """Machines that share the processes evenly."""
    threads: int = 1
    pass_fds: tuple[int, ...] = field(default=())
    """File descriptors of locks that a local job inherits, so that they stay locked until it has ended. In a queue,
    the job's name replaces the lock (``infra.launch.batch_queue``)."""
    gpus: tuple[str, ...] = ()
    """The GPUs of this job; empty: all that CUDA finds."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Additional environment variables of the job, which override the caller's."""

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
        """Write ``job.json``; remove the files of a launch elsewhere."""
        self.path.write_text(self.text())
        for name in (EXIT, SCRIPT):
            (self.out / name).unlink(missing_ok=True)


class Launcher(Protocol):
    def run(self, job: JobSpec, on_poll: Callable[[], None]) -> None:
        """Run the job to its end and call ``on_poll`` meanwhile; raises the Fault that ``exit.json`` names.

        Any exception first stops the job.
        """


def command(job: JobSpec, python: str, rendezvous: Sequence[str] = ("--standalone",)) -> list[str]:
    """Return the command line for ``job.json``: the module itself, or torchrun with the options ``rendezvous``."""
    module = ["-m", job.module, str(job.path)]
    if not job.distributed:
        return [python, *module]
    # --max-restarts=0: torchrun's own restarts hang; the stage relaunches from the newest checkpoint instead.
    torchrun = ["-m", "torch.distributed.run", *rendezvous, f"--nproc-per-node={job.ranks_per_node}"]
    return [python, *torchrun, "--max-restarts=0", *module]


def variables(job: JobSpec) -> dict[str, str]:
    """Return the environment variables of a job on any machine."""
    return {
        **SAFE_PATH,
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",  # files that a job writes must not depend on the locale
        "OMP_NUM_THREADS": str(job.threads),
        **thread_waiting(os.environ),
        "TOKENIZERS_PARALLELISM": "true",
        **({"CUDA_VISIBLE_DEVICES": ",".join(job.gpus)} if job.gpus else {}),
        # malloc reuses the heap for large tensors. The kernel would have to clear new pages.
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": "4294967296",
        **job.environment,
    }


def option_words(variable: str, program: str) -> tuple[str, ...]:
    """Return the options in an environment variable. Raises BadConfiguration if the shell's rules cannot split it."""
    text = os.environ.get(variable, "")
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise BadConfiguration(f"{variable} is {text!r}, allowed are options of {program}: {error}") from None


def raise_for_exit(job: JobSpec, status: int, last_words: str) -> None:
    """Raise the Fault named in ``exit.json``. Without that file raise JobFailed, or OSError if the disk is full.

    A rank that was killed comes first: the others then fail with an error of the connection."""
    killed = KILLED_RANK.search(last_words)
    try:
        exit_ = json.loads((job.out / EXIT).read_text())
    except (OSError, ValueError):
        probe = job.out / "probe.partial"
        try:
            probe.write_bytes(bytes(PROBE_BYTES))  # fails on a full disk, where a job cannot write ``exit.json``
        finally:
            probe.unlink(missing_ok=True)
        if killed:
            raise JobFailed(f"{job.module} was killed by signal {killed[1]}") from None
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        raise JobFailed(
            f"{job.module} {how} without a reason" + (f"; its last line: {last_words}" if last_words else "")
        ) from None
    if killed and exit_["reason"] == "failed":
        raise JobFailed(f"{job.module} was killed by signal {killed[1]}")
    if exit_["reason"] != "done":
        raise fault_for(exit_["reason"], exit_["message"])
