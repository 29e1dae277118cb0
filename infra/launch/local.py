"""Jobs as process groups on this machine. Nothing outlives the launcher: not by Ctrl-C, not by SIGKILL."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from infra import interrupts
from infra.launch import Job, raise_for_exit
from infra.processes import die_with_parent, end, signal_group

POLL_SECONDS = 0.2


class LocalLauncher:
    """Runs a job in a session of its own, its output in ``<out>/job.log``."""

    def run(self, job: Job, on_poll: Callable[[], None]) -> None:
        arguments = _command(job)
        log = job.out / "job.log"
        with log.open("ab") as output:
            begin = output.tell()
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent(),
                pass_fds=job.holds,
                env=_environment(job),
            )
        try:
            while process.poll() is None:
                interrupts.check()
                on_poll()
                time.sleep(POLL_SECONDS)
            on_poll()
        except BaseException:
            end(process)
            raise
        finally:
            signal_group(process, signal.SIGKILL)  # what a killed leader left behind; ranks end with their torchrun
        raise_for_exit(job, process.returncode, _last_line(log, begin))


def _command(job: Job) -> list[str]:
    path = str(job.write())
    if not job.distributed:
        return [sys.executable, "-m", job.module, path]
    # --max-restarts=0: torchrun's own restarts hang; the stage relaunches from the newest checkpoint instead.
    torchrun = ["torch.distributed.run", "--standalone", f"--nproc-per-node={job.ranks}", "--max-restarts=0"]
    return [sys.executable, "-m", *torchrun, "-m", job.module, path]


def _environment(job: Job) -> dict[str, str]:
    house = str(Path(__file__).resolve().parents[2])
    search = os.pathsep.join(filter(None, [house, os.environ.get("PYTHONPATH", "")]))
    return {
        **os.environ,
        "PYTHONPATH": search,
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": str(job.threads),
        "TOKENIZERS_PARALLELISM": "true",
        **({"CUDA_VISIBLE_DEVICES": ",".join(job.gpus)} if job.gpus else {}),
        # Large tensors come back from the heap instead of from fresh pages, which the kernel would have to clear.
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": "4294967296",
    }


def _last_line(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(begin)
        lines = [line for line in file.read()[-4000:].decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else ""
