"""Jobs by SLURM: a batch script in ``out``, submitted, watched by its number, cancelled with its launcher.

    job.sh   what was submitted, to be read, and to be submitted again by hand

One ``srun`` starts torchrun on each node; they meet at the first one. SLURM sends SIGTERM to the processes ahead of the
time limit, at a pre-emption and at a cancellation: the ranks leave a checkpoint. A job that SLURM puts back into its
queue goes on from there under the same number; after a time limit the stage submits another one.
"""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass

from infra.errors import BadConfiguration, Fault, JobFailed, NetworkFault, OutOfMemory, Preempted
from infra.launch.batch_queue import QueueLauncher, QueueStatus, job_name
from infra.launch.command import command, python_path, variables
from infra.launch.job import EXIT, JobSpec

PROGRAMS = ("sbatch", "srun", "squeue", "scancel", "scontrol")
ANSWER_SECONDS = 120
WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
ENDED = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
}
UNREACHABLE_PATTERNS = (
    "contact slurm controller",
    "timed out",
    "connection refused",
    "communication",
    "zero bytes",
    "backup mode",
)
"""Words of SLURM's complaints that are no answer."""


@dataclass(frozen=True)
class SlurmSettings:
    """Where in a cluster; empty leaves it to SLURM."""

    partition: str = ""
    """REPRO_SLURM_PARTITION"""
    account: str = ""
    """REPRO_SLURM_ACCOUNT"""
    time: str = ""
    """Limit for one job (REPRO_SLURM_TIME) as in ``12:00:00``; a training that needs longer takes several."""
    options: tuple[str, ...] = ()
    """Any other option of sbatch (REPRO_SLURM_OPTIONS), as in ``--mem=64G --constraint=h100``."""
    notice_seconds: int = 120
    """How long before the limit the ranks are asked for a checkpoint."""

    @staticmethod
    def from_environment() -> "SlurmSettings":
        """What the environment says. Raises BadConfiguration for what cannot be read."""
        said = os.environ.get("REPRO_SLURM_OPTIONS", "")
        try:
            options = tuple(shlex.split(said))
        except ValueError as error:
            raise BadConfiguration(f"REPRO_SLURM_OPTIONS is {said!r}, allowed are options of sbatch: {error}") from None
        partition, account, time = (
            os.environ.get(f"REPRO_SLURM_{name}", "") for name in ("PARTITION", "ACCOUNT", "TIME")
        )
        return SlurmSettings(partition, account, time, options)


@dataclass(frozen=True)
class Slurm:
    """SLURM as a queue, by its own programs."""

    settings: SlurmSettings

    def is_same_spec(self, job: JobSpec) -> bool:
        try:
            return (job.out / "job.sh").read_text() == script(job, self.settings)
        except OSError:
            return False

    def find(self, job: JobSpec) -> str:
        found = _run("squeue", "--me", "--noheader", "--format=%i", f"--name={job_name(job)}").split()
        return _named(found[0]) if found else ""

    def submit(self, job: JobSpec) -> str:
        path = job.out.absolute() / "job.sh"
        path.write_text(script(job, self.settings))
        try:
            answer = _run("sbatch", "--parsable", str(path))
        except Fault as fault:
            raise fault if isinstance(fault, NetworkFault) else BadConfiguration(f"{fault}") from None
        return _named(answer.strip().partition(";")[0])  # number;cluster

    def poll(self, name: str) -> QueueStatus:
        state, reason, status = _state(_number(name))
        words = f"{state.lower()}" + (f" ({reason})" if reason not in ("", "None") else "")
        if state in ENDED:
            return QueueStatus("ended", words, _fault(name, state), status)
        return QueueStatus("ends" if state == "COMPLETING" else "waits" if state in WAITING else "runs", words)

    def cancel(self, name: str) -> None:
        _run("scancel", _number(name))

    def clear(self, name: str) -> None:
        """SLURM forgets jobs by itself."""


def slurm_launcher() -> QueueLauncher:
    """A launcher as the environment describes it; raises BadConfiguration where SLURM is not installed."""
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        raise BadConfiguration(f"the launcher is 'slurm', but this machine has no program {missing[0]!r} on its PATH")
    return QueueLauncher(Slurm(SlurmSettings.from_environment()))


def script(job: JobSpec, settings: SlurmSettings) -> str:
    """The batch script. Raises BadConfiguration for a path that SLURM cannot write a log to."""
    out, cpus = job.out.absolute(), job.ranks_per_node * job.threads
    if "\n" in f"{out}":
        raise BadConfiguration(f"out is {f'{out}'!r}, allowed is a path of one line")
    options = [
        f"--job-name={job_name(job)}",
        f"--nodes={job.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={cpus}",
        *([f"--gres=gpu:{job.ranks_per_node}"] if job.site.get("device") == "cuda" else []),
        f"--chdir={out}",
        f"--output={f'{out}'.replace('%', '%%')}/job.log",
        "--open-mode=append",
        "--requeue",
        f"--signal=TERM@{settings.notice_seconds}",
        *([f"--partition={settings.partition}"] if settings.partition else []),
        *([f"--account={settings.account}"] if settings.account else []),
        *([f"--time={settings.time}"] if settings.time else []),
        *settings.options,
    ]
    # Over the port of another job on the same node the rendezvous would still be told apart by its id.
    port = "$((20000 + SLURM_JOB_ID % 20000))"
    rendezvous = (f"--nnodes={job.nodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint=$first:{port}")
    words = command(job, sys.executable, (*rendezvous, "--rdzv-id=$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}"))
    unseen = f"this node does not see {job.path}: out and inputs must lie on a disk that the nodes share"
    exports = {"PYTHONPATH": python_path(), **variables(job)}
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH {shlex.quote(option)}" for option in options),
            "",
            *(f"export {name}={shlex.quote(value)}" for name, value in exports.items()),
            f"test -r {shlex.quote(f'{job.path}')} || {{ echo {shlex.quote(unseen)} >&2; exit 66; }}",
            f"rm -f {shlex.quote(f'{out / EXIT}')}  # of a start before this job was put back into the queue",
            'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            # A node whose ranks are done leaves the others the time to write what they have to.
            f"exec srun --nodes={job.nodes} --ntasks-per-node=1 --cpus-per-task={cpus} --kill-on-bad-exit=0 \\",
            "    " + " ".join(_word(word) for word in words),
            "",
        ]
    )


def _word(word: str) -> str:
    """Quoted for the shell, except in what this file itself wants the shell to fill in."""
    return f'"{word}"' if word.startswith("--rdzv-") else shlex.quote(word)


def _state(number: str) -> tuple[str, str, int]:
    """State, reason and exit status: squeue knows jobs that have not ended, and for minutes those that have."""
    listed = _run_or_empty("squeue", "--noheader", "--states=all", "--format=%T|%r", f"--jobs={number}")
    state, _, reason = listed.strip().partition("\n")[0].partition("|")
    if state and state not in ENDED:
        return state, reason, 1
    # Accounting is not kept everywhere, and the controller forgets.
    with contextlib.suppress(NetworkFault):
        wanted = ("--allocations", "--parsable2", "--format=State,ExitCode")
        account = _run_or_empty("sacct", "--noheader", *wanted, f"--jobs={number}")
        found = re.match(r"([A-Z_]+)[^|]*\|(\d+):(\d+)", account)
        if found and found[1] in ENDED:  # it may lag behind
            return found[1], "", _status(found[2], found[3])
    shown = _run_or_empty("scontrol", "show", "job", "--oneliner", number)
    told, code = re.search(r"\bJobState=(\w+)", shown), re.search(r"\bExitCode=(\d+):(\d+)", shown)
    if told:
        return told[1], "", _status(code[1], code[2]) if code else 1
    return state or "FAILED", "", 1  # forgotten: its exit.json has the word


def _status(code: str, signal: str) -> int:
    return -int(signal) if int(signal) else int(code)


def _fault(name: str, state: str) -> Fault | None:
    """The fault behind an end that the job itself may not have told of."""
    if state in ("TIMEOUT", "PREEMPTED", "DEADLINE"):
        return Preempted(f"{name} was ended by SLURM ({state}); its newest checkpoint is kept")
    if state in ("NODE_FAIL", "BOOT_FAIL"):
        return JobFailed(f"{name} lost its node ({state})")
    if state == "OUT_OF_MEMORY":
        more = "ask for more, as in REPRO_SLURM_OPTIONS=--mem=64G"
        return OutOfMemory(f"{name} was killed by SLURM for its memory: {more}")
    if state in ("CANCELLED", "REVOKED"):
        return Fault(f"{name} was cancelled by somebody; its newest checkpoint is kept")
    return None


def _run_or_empty(*words: str) -> str:
    """What a program says; empty where it knows nothing of the job."""
    try:
        return _run(*words)
    except NetworkFault:
        raise
    except Fault:
        return ""


def _run(*words: str) -> str:
    """What a program of SLURM prints. Raises NetworkFault where the controller is away, else Fault."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise NetworkFault(f"{words[0]} did not answer for {ANSWER_SECONDS} s") from None
    except OSError as error:
        raise Fault(f"{words[0]} cannot be run: {error}") from None
    if done.returncode == 0:
        return done.stdout
    said = " ".join(done.stderr.split()) or f"status {done.returncode}"
    raise (NetworkFault if any(word in said.lower() for word in UNREACHABLE_PATTERNS) else Fault)(f"{words[0]}: {said}")


def _named(number: str) -> str:
    return f"SLURM job {number}"


def _number(name: str) -> str:
    return name.rpartition(" ")[2]
