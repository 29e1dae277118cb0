"""Runs jobs on SLURM: writes a batch script to ``out``, submits it, watches its job id, cancels it with its launcher.

    job.sh   the submitted script, which can be submitted again by hand

One ``srun`` starts torchrun on each node; rendezvous is on the first node. SLURM sends SIGTERM before the time limit,
on preemption and on cancellation, and the ranks write a checkpoint. A requeued job continues from the checkpoint under
the same id. After a time limit the stage submits a new job.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass

from infra.errors import BadConfiguration, Fault, JobFailed, NetworkFault, OutOfMemory, Preempted
from infra.launch.batch_queue import QueueLauncher, QueueStatus, job_name
from infra.launch.job import EXIT, SCRIPT, JobSpec, command, option_words, variables
from infra.processes.children import python_path

PROGRAMS = ("sbatch", "srun", "squeue", "scancel", "scontrol")
ANSWER_SECONDS = 120
WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
KEPT = "its newest checkpoint is kept"
MEMORY = "used too much memory and was killed by SLURM: request more, as in REPRO_SLURM_OPTIONS=--mem=64G"
ENDED: dict[str, tuple[type[Fault], str]] = {
    **dict.fromkeys(("COMPLETED", "FAILED"), (Fault, "")),
    **dict.fromkeys(("TIMEOUT", "PREEMPTED", "DEADLINE"), (Preempted, f"was ended by SLURM; {KEPT}")),
    **dict.fromkeys(("NODE_FAIL", "BOOT_FAIL"), (JobFailed, "lost its node")),
    **dict.fromkeys(("CANCELLED", "REVOKED"), (Fault, f"was cancelled outside of repro; {KEPT}")),
    "OUT_OF_MEMORY": (OutOfMemory, MEMORY),
}
"""Maps the states of an ended job to the fault that the job itself may have failed to report."""
FORGOTTEN = re.compile("invalid job id", re.I)
"""What squeue says of a job that ended some minutes ago."""
UNREACHABLE = re.compile(
    "contact slurm controller|timed out|connection refused|communication|zero bytes|backup mode", re.I
)
"""Matches error messages about an unreachable controller; SLURM has no status for it."""


@dataclass(frozen=True)
class SlurmSettings:
    """Options of sbatch; an empty value leaves the choice to SLURM."""

    partition: str = ""
    """REPRO_SLURM_PARTITION"""
    account: str = ""
    """REPRO_SLURM_ACCOUNT"""
    time: str = ""
    """Time limit of one job (REPRO_SLURM_TIME), for example ``12:00:00``. A longer training takes several jobs."""
    options: tuple[str, ...] = ()
    """Other options of sbatch (REPRO_SLURM_OPTIONS), for example ``--mem=64G --constraint=h100``."""
    notice_seconds: int = 120
    """How long before the time limit the ranks get SIGTERM."""

    @staticmethod
    def from_environment() -> "SlurmSettings":
        """Read REPRO_SLURM_*. Raises BadConfiguration for options that the shell's rules cannot split."""
        names = ("PARTITION", "ACCOUNT", "TIME", "OPTIONS")
        read = {name: os.environ.get(f"REPRO_SLURM_{name}", "") for name in names}
        for name, value in read.items():
            if not value.isprintable():  # a newline would add a line to the job's script
                raise BadConfiguration(f"REPRO_SLURM_{name} is {value!r}, allowed is one line of printable characters")
        options = option_words("REPRO_SLURM_OPTIONS", "sbatch")
        return SlurmSettings(read["PARTITION"], read["ACCOUNT"], read["TIME"], options)


@dataclass(frozen=True)
class Slurm:
    """SLURM as a batch queue, through its command line programs."""

    settings: SlurmSettings
    file = SCRIPT

    def description(self, job: JobSpec) -> str:
        return script(job, self.settings)

    def find(self, job: JobSpec) -> str:
        numbers = _run("squeue", "--me", "--noheader", "--format=%i", f"--name={job_name(job)}").split()
        return f"SLURM job {numbers[0]}" if numbers else ""

    def submit(self, job: JobSpec) -> str:
        # A name in SBATCH_JOB_NAME or REPRO_SLURM_OPTIONS would hide the job from ``find``.
        answer = _run("sbatch", "--parsable", f"--job-name={job_name(job)}", str(job.out.absolute() / self.file))
        return f"SLURM job {answer.strip().partition(';')[0]}"  # number;cluster

    def poll(self, name: str) -> QueueStatus:
        state, reason = _state(name.rpartition(" ")[2])  # name: SLURM job 12
        description = state.lower() + (f" ({reason})" if reason not in ("", "None") else "")
        if state in ENDED:
            kind, said = ENDED[state]
            return QueueStatus("ended", description, kind(f"{name} ({state}) {said}") if said else None)
        if state == "COMPLETING":
            return QueueStatus("stopping", description)
        return QueueStatus("pending" if state in WAITING else "running", description)

    def cancel(self, name: str) -> None:
        _run("scancel", name.rpartition(" ")[2])

    def clear(self, name: str) -> None:
        """SLURM removes ended jobs itself."""


def slurm_launcher() -> QueueLauncher:
    """Return a launcher with the environment's settings; raises BadConfiguration if SLURM is not installed."""
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        raise BadConfiguration(f"the launcher is 'slurm', but this machine has no program {missing[0]!r} on its PATH")
    return QueueLauncher(Slurm(SlurmSettings.from_environment()))


def script(job: JobSpec, settings: SlurmSettings) -> str:
    """Return the batch script. Raises BadConfiguration for a path with a line break, which options cannot contain."""
    out = job.out.absolute()
    cpus = job.ranks_per_node * job.threads
    if "\n" in f"{out}":
        raise BadConfiguration(f"out is {f'{out}'!r}, allowed is a path of one line")
    options = [
        f"--nodes={job.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={cpus}",
        *([f"--gres=gpu:{job.ranks_per_node}"] if job.site.get("device") == "cuda" else []),
        f"--chdir={out}",
        f"--output={f'{out}'.replace('%', '%%')}/job.log",
        "--open-mode=append",
        "--requeue",
        f"--signal=TERM@{settings.notice_seconds}",
        *(f"--{name}={value}" for name in ("partition", "account", "time") if (value := getattr(settings, name))),
        *settings.options,
    ]
    # Two jobs on one node may share a port; the rendezvous id still distinguishes them.
    port = "$((20000 + SLURM_JOB_ID % 20000))"
    rendezvous = (f"--nnodes={job.nodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint=$first:{port}")
    start = command(job, sys.executable, (*rendezvous, "--rdzv-id=$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}"))
    words = [f'"{word}"' if word.startswith("--rdzv-") else shlex.quote(word) for word in start]  # with variables
    message = f"this node does not see {job.path}: out and inputs must lie on a disk that the nodes share"
    exports = {"PYTHONPATH": python_path(os.environ), **variables(job)}
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH {shlex.quote(option)}" for option in options),
            "",
            *(f"export {name}={shlex.quote(value)}" for name, value in exports.items()),
            f"test -r {shlex.quote(f'{job.path}')} || {{ echo {shlex.quote(message)} >&2; exit 66; }}",
            f"rm -f {shlex.quote(f'{out / EXIT}')}  # of a start before this job was requeued",
            'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            # When the ranks of one node have ended, the ranks of other nodes may still be writing.
            f"exec srun --nodes={job.nodes} --ntasks-per-node=1 --cpus-per-task={cpus} --kill-on-bad-exit=0 \\",
            "    " + " ".join(words),
            "",
        ]
    )


def _state(number: str) -> tuple[str, str]:
    """Return state and reason. The controller forgets an ended job after some minutes; exit.json then tells its end."""
    try:
        listed = _run("squeue", "--noheader", "--states=all", "--format=%T|%r", f"--jobs={number}")
    except BadConfiguration as error:
        if not FORGOTTEN.search(f"{error}"):
            raise NetworkFault(f"{error}") from error  # it says nothing of the job
        listed = ""
    state, _, reason = listed.strip().partition("\n")[0].partition("|")
    return state or "FAILED", reason


def _run(*arguments: str) -> str:
    """Return a SLURM program's output. Raises NetworkFault for an unreachable controller, else BadConfiguration."""
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise NetworkFault(f"{arguments[0]} did not answer for {ANSWER_SECONDS} s") from None
    except OSError as error:
        raise BadConfiguration(f"{arguments[0]} cannot be run: {error}") from None
    if done.returncode == 0:
        return done.stdout
    message = " ".join(done.stderr.split()) or f"status {done.returncode}"
    raise (NetworkFault if UNREACHABLE.search(message) else BadConfiguration)(f"{arguments[0]}: {message}")
