"""The command line and environment variables of a job, the same for all launchers."""

import os
import shlex
from collections.abc import Sequence

from infra.errors import BadConfiguration
from infra.launch.job import JobSpec
from infra.processes.children import SAFE_PATH
from infra.processes.compute import thread_waiting


def command(job: JobSpec, python: str, rendezvous: Sequence[str] = ("--standalone",)) -> list[str]:
    """The command line over ``job.json``: the module itself, or torchrun with the options ``rendezvous``."""
    module = ["-m", job.module, str(job.path)]
    if not job.distributed:
        return [python, *module]
    # --max-restarts=0: torchrun's own restarts hang; the stage relaunches from the newest checkpoint instead.
    torchrun = ["-m", "torch.distributed.run", *rendezvous, f"--nproc-per-node={job.ranks_per_node}"]
    return [python, *torchrun, "--max-restarts=0", *module]


def variables(job: JobSpec) -> dict[str, str]:
    """Environment variables of a job on any machine."""
    return {
        **SAFE_PATH,
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": str(job.threads),
        **thread_waiting(os.environ),
        "TOKENIZERS_PARALLELISM": "true",
        **({"CUDA_VISIBLE_DEVICES": ",".join(job.gpus)} if job.gpus else {}),
        # malloc reuses the heap for large tensors instead of new pages, which the kernel would have to clear.
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": "4294967296",
        **job.environment,
    }


def option_words(variable: str, program: str) -> tuple[str, ...]:
    """The options in an environment variable. Raises BadConfiguration if the shell's rules cannot split it."""
    text = os.environ.get(variable, "")
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise BadConfiguration(f"{variable} is {text!r}, allowed are options of {program}: {error}") from None
