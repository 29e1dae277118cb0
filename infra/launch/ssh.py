"""Runs jobs on one machine that ssh reaches: sends files and code, starts a job there, follows its copied output.

The machines share no disk. A folder there holds everything that a job needs:

    inputs/<digest>/   input folders by their content, each sent once
    code/<digest>/     the package ``model``
    jobs/<name>/       a copy of the job's ``out``: sent at the start, fetched while it runs, removed when it is done
    jobs/<name>.lock   held by the job's processes; a free lock means that the job has ended
    jobs/<name>.pid    the process group;  <name>.status: "running" or, at the end, the exit status
    turn.lock          held by the one job that computes

``job.sh`` starts the job. The job survives a lost connection; a later launcher finds it by its name, as in a batch
queue.
"""

import hashlib
import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from infra.errors import BadConfiguration, JobFailed, NoSpace
from infra.launch.batch_queue import QueueLauncher, QueueStatus, job_name
from infra.launch.far_machine import FarMachine
from infra.launch.job import EXIT, SCRIPT, JobSpec, command, option_words, variables
from infra.processes.children import PROJECT_ROOT
from infra.processes.identity import machine_identity

PATIENCE_SECONDS = 3600.0
"""How long the machine may be unreachable; the job continues meanwhile."""
KILL_SECONDS = 40
"""Seconds between SIGTERM and SIGKILL; the launcher waits a little longer."""
OWN_FILES = ("--exclude=job.json", "--exclude=*.partial")
"""Options of rsync for the files in ``out`` that are not copied, because each machine has its own."""
CHECK = """
import os, shutil, sys
from importlib import metadata, util
folder = os.path.join(os.path.expanduser("~"), sys.argv[1])
programs = [name for name in ("rsync", "flock", "setsid", "nohup") if not shutil.which(name)]
packages = [name for name in ("torch", "numpy", "pyarrow", "tokenizers", "safetensors") if not util.find_spec(name)]
if programs:
    sys.exit("no program " + ", ".join(programs) + " there: install it")
if sys.version_info < (3, 11):
    sys.exit("REPRO_SSH_PYTHON is Python " + sys.version.split()[0] + " there, allowed is 3.11 or later")
if packages:
    sys.exit(sys.executable + " has no package " + ", ".join(packages) + ": install it there, see docs/deployment.md")
for name in ("inputs", "code", "jobs"):
    os.makedirs(os.path.join(folder, name), exist_ok=True)
gpus = [name for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()]
free = shutil.disk_usage(folder).free / 2**30
print(os.path.abspath(shutil.which(sys.argv[2])))
print(os.path.realpath(folder))
print(f"torch {metadata.version('torch')}, {len(gpus)} GPUs, {free:.1f} GiB free for {folder}")
"""
"""Program for the Python there: prints the paths of Python and the folder and a description, or ends with an error."""
# Scripts for the shell there; $job is the job's folder.
PREPARE = 'if [ -d "$job" ]; then rm -rf "$job.new"; mv "$job" "$job.new"; fi'
START = """
exec 9> "$job.lock"
flock -w 10 9 || { echo 'another launcher has just started this job' >&2; exit 3; }
rm -f "$job.status"
mv "$job.new" "$job" && cd "$job" || exit 3
setsid nohup sh job.sh < /dev/null >> job.log 2>&1 &
echo $! > "$job.pid"
"""
POLL = """
[ -d "${job%/*}" ] || exit 0
flock -s -n "$job.lock" true || echo alive
cat "$job.status"
head -c 65536 /dev/zero > "$job.probe" || echo full
rm -f "$job.probe"
"""
CANCEL = f"""
flock -s -n "$job.lock" true && exit
group=$(cat "$job.pid")
setsid nohup sh -c "sleep {KILL_SECONDS}; kill -KILL -$group" < /dev/null > /dev/null 2>&1 &
kill -TERM -$group || flock -s -n "$job.lock" true
"""
CLEAR = f"""if grep -q '"reason": "done"' "$job/{EXIT}"; then rm -rf "$job" "$job".*; fi"""


@dataclass
class SshQueue:
    """The machine as a batch queue that runs one job at a time. A job's name is its folder there."""

    machine: FarMachine
    folder: str = "repro-jobs"
    """The folder for files there: absolute, or relative to the home folder. ``examine`` makes it absolute."""
    python: str = "python3"
    """Python there, with the five packages of a job: a program on the PATH, or a path in the form of ``folder``."""
    file = SCRIPT

    def examine(self) -> str:
        """Return a description of the machine. Raises BadConfiguration if no job can run there."""
        said = self.machine.run(shlex.join([self.python, "-c", CHECK, self.folder, self.python])).splitlines()
        if len(said) != 3:
            text = " ".join(said)[:200]
            raise BadConfiguration(f"`ssh {self.machine.host}` prints its own text, allowed is none: {text!r}")
        self.python, self.folder, description = said
        return f"{self.machine.host}: {description}"

    def description(self, job: JobSpec) -> str:
        if job.nodes > 1:
            raise BadConfiguration(f"site.nodes is {job.nodes}, allowed is 1: the launcher 'ssh' uses one machine")
        self.examine()
        return self._script(job)

    def find(self, job: JobSpec) -> str:
        name = self._name(job)
        return "" if self.poll(name).phase == "ended" else name

    def submit(self, job: JobSpec) -> str:
        name = self._name(job)
        self._shell(name, PREPARE)  # first: if the copy of the inputs is interrupted, nothing old is fetched
        code = PROJECT_ROOT / "model"
        self.machine.send(f"{code}", f"{self.folder}/code/{_digest(code)}/", "--exclude=__pycache__")
        for source in job.inputs.values():
            self.machine.send(f"{source}/", f"{self._input(source)}/")
        # The copy gets its final name when complete: fetching from a partial copy would remove checkpoints here.
        self.machine.send(f"{job.out}/", f"{name}.new/", "--delete", *OWN_FILES)
        self._shell(name, START)
        return name

    def poll(self, name: str) -> QueueStatus:
        host = self.machine.host
        said = self._shell(name, POLL).split()
        if "alive" in said:
            waits = f"waits on {host} for the end of another job"
            return QueueStatus("running", f"runs on {host}") if "running" in said else QueueStatus("pending", waits)
        if "full" in said:
            return QueueStatus("ended", "ended", NoSpace(f"no space left on {host} for {self.folder}"))
        if said and said[0].isdigit():
            code = int(said[0])  # a shell adds 128 to the signal
            return QueueStatus("ended", "ended", status=code if code <= 128 else 128 - code)
        return QueueStatus("ended", "ended", JobFailed(f"{name} was killed, or its machine was restarted"))

    def cancel(self, name: str) -> None:
        self._shell(name, CANCEL)

    def clear(self, name: str) -> None:
        """Remove a successful job. The next job continues from the files of a failed job."""
        os.sync()  # what was fetched is now the only copy
        self._shell(name, CLEAR)

    def fetch(self, job: JobSpec, limit: float) -> None:
        self.machine.fetch(f"{self._name(job)}/", f"{job.out}/", "--delete-after", *OWN_FILES, limit=limit)

    def _script(self, job: JobSpec) -> str:
        """Return ``job.sh``. It waits for ``turn.lock``; its shell survives SIGTERM and writes the job's status."""
        out = Path(self._name(job))
        inputs = {name: Path(self._input(source)) for name, source in job.inputs.items()}
        there = replace(job, inputs=inputs, out=out)
        exports = {**variables(job), "PYTHONPATH": f"{self.folder}/code/{_digest(PROJECT_ROOT / 'model')}"}
        return "\n".join(
            [
                f"# on {self.machine.host}",
                f"job={shlex.quote(f'{out}')}",
                'cd "$job" || exit',
                "trap : TERM",
                f"cat > job.json <<'END OF JOB'\n{there.text()}\nEND OF JOB",
                f"rm -f {EXIT}",
                *(f"export {name}={shlex.quote(value)}" for name, value in exports.items()),
                'exec 8>> "${job%/jobs/*}/turn.lock"',
                "flock 8 || exit",
                'echo running > "$job.status"',
                shlex.join(command(there, self.python)),
                'echo $? > "$job.status"',
                "",
            ]
        )

    def _shell(self, name: str, script: str) -> str:
        return self.machine.run(f"job={shlex.quote(name)}\n{script}\n")

    def _name(self, job: JobSpec) -> str:
        """Return the job's folder, named with this machine's identity: other machines may use the same paths."""
        return f"{self.folder}/jobs/{job_name(job)}-{machine_identity()}"

    def _input(self, source: Path) -> str:
        return f"{self.folder}/inputs/{_digest(source)}"


def ssh_queue() -> SshQueue:
    """Return the queue of the environment's machine. Raises BadConfiguration for a missing or malformed REPRO_SSH_*."""
    host, folder, python = (os.environ.get(f"REPRO_SSH_{name}", "") for name in ("HOST", "FOLDER", "PYTHON"))
    if not host:
        raise BadConfiguration("the launcher is 'ssh', but REPRO_SSH_HOST is not set")
    if host.startswith("-"):
        raise BadConfiguration(f"REPRO_SSH_HOST is {host!r}, allowed is user@address or a name of ~/.ssh/config")
    machine = FarMachine(host, option_words("REPRO_SSH_OPTIONS", "ssh"))
    folder, python = (word.removeprefix("~/") for word in (folder, python))
    return SshQueue(machine, folder or SshQueue.folder, python or SshQueue.python)


def ssh_launcher(queue: SshQueue | None = None) -> QueueLauncher:
    """Return a launcher for a machine, by default the environment's."""
    queue = queue or ssh_queue()
    return QueueLauncher(queue, patience_seconds=PATIENCE_SECONDS, lag_seconds=0.0, fetch=queue.fetch)


def _digest(folder: Path) -> str:
    """Return a digest of a folder's content: of its manifest, which has every checksum, otherwise of its files."""
    files = [folder / "manifest.json"]
    if not files[0].exists():
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    sums = [f"{file.relative_to(folder)} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in files]
    return hashlib.sha256("\n".join(sums).encode()).hexdigest()[:16]
