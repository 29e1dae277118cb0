"""The command line of a job and the variables it needs, the same wherever it is started."""

import os
from collections.abc import Sequence
from pathlib import Path

from infra.launch.job import JobSpec
from infra.processes.children import SAFE_PATH

PROJECT_ROOT = Path(__file__).resolve().parents[2]
"""Where this project's packages lie."""
LAST_BYTES = 4000
STARTERS = ("srun: ", "slurmstepd: ")
"""How lines begin that are of who started the job."""


def command(job: JobSpec, python: str, rendezvous: Sequence[str] = ("--standalone",)) -> list[str]:
    """Start the job over its ``job.json``: alone, or by torchrun, which finds the other nodes by ``rendezvous``."""
    module = ["-m", job.module, str(job.path)]
    if not job.distributed:
        return [python, *module]
    # --max-restarts=0: torchrun's own restarts hang; the stage relaunches from the newest checkpoint instead.
    torchrun = [
        "-m",
        "torch.distributed.run",
        *rendezvous,
        f"--nproc-per-node={job.ranks_per_node}",
        "--max-restarts=0",
    ]
    return [python, *torchrun, *module]


def variables(job: JobSpec) -> dict[str, str]:
    """What a job needs in its environment on any machine."""
    return {
        **SAFE_PATH,
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": str(job.threads),
        "TOKENIZERS_PARALLELISM": "true",
        **({"CUDA_VISIBLE_DEVICES": ",".join(job.gpus)} if job.gpus else {}),
        # Large tensors come back from the heap instead of from fresh pages, which the kernel would have to clear.
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": "4294967296",
    }


def python_path() -> str:
    """``PYTHONPATH`` by which a job finds this project and what the caller has on its path."""
    return os.pathsep.join(filter(None, [str(PROJECT_ROOT), os.environ.get("PYTHONPATH", "")]))


def last_line(log: Path, begin: int) -> str:
    """The job's last words in a log behind byte ``begin``; empty where there are none."""
    try:
        with log.open("rb") as file:
            file.seek(begin)
            lines = [line.strip() for line in file.read()[-LAST_BYTES:].decode(errors="replace").splitlines()]
    except FileNotFoundError:
        return ""
    said = [line for line in lines if line]
    own = [line for line in said if not line.startswith(STARTERS)]
    return next(reversed(own or said), "")[:300]
