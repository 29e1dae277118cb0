"""A SLURM cluster of this machine alone: munged, slurmctld and slurmd as child processes in a temporary folder."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest
from services import wait_for

from infra.servers.loopback import free_ports

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
CONFIGURATION = """
ClusterName=small
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=30
MinJobAge=300
SchedulerParameters=sched_interval=2,bf_interval=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


class Cluster:
    """One controller and one node. Skips the test where SLURM is not installed."""

    def __init__(self) -> None:
        missing = [program for program in PROGRAMS if not shutil.which(program, path=self.path())]
        if missing:
            pytest.skip(f"NOT RUN: no program {missing[0]!r}; the packages are slurm-wlm and munge (Debian)")
        if os.getuid():
            pytest.skip("NOT RUN: SLURM's daemons need root to be started here")
        self.root = Path(tempfile.mkdtemp(prefix="slurm-"))
        self.root.chmod(0o755)  # sockets are opened by whoever may pass
        for folder in ("state", "spool"):
            (self.root / folder).mkdir()
        host = socket.gethostname().partition(".")[0]
        self.conf = self.root / "slurm.conf"
        self.conf.write_text(CONFIGURATION.format(root=self.root, host=host, ports=free_ports(2)))
        key = self.root / "munge.key"
        key.write_bytes(os.urandom(64))
        key.chmod(0o400)
        self.daemons: list[subprocess.Popen[bytes]] = []
        munge = {"key-file": key, "socket": self.root / "munge.socket", "pid-file": self.root / "munged.pid"}
        munge |= {"log-file": self.root / "munged.log", "seed-file": self.root / "munged.seed"}
        try:
            self._start("munged", "--foreground", "--force", *(f"--{name}={path}" for name, path in munge.items()))
            wait_for((self.root / "munge.socket").exists)
            self._start("slurmctld", "-D", "-i")
            self._start("slurmd", "-D")
            wait_for(lambda: "idle" in self.ask("sinfo", "--noheader", "--format=%T"))
        except BaseException:
            self.end()
            raise

    @staticmethod
    def path() -> str:
        return os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])

    def _start(self, *words: str) -> None:
        log = (self.root / f"{words[0]}.out").open("ab")
        environment = {**os.environ, "SLURM_CONF": f"{self.conf}", "PATH": self.path()}
        self.daemons.append(subprocess.Popen(words, stdout=log, stderr=log, env=environment, start_new_session=True))
        log.close()

    def ask(self, *words: str) -> str:
        environment = {**os.environ, "SLURM_CONF": f"{self.conf}"}
        return subprocess.run(words, capture_output=True, text=True, env=environment, check=False, timeout=60).stdout

    def state(self, number: str) -> str:
        """``RUNNING``, …"""
        return self.ask("squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={number}").strip()

    def queued(self) -> list[str]:
        """Numbers of the jobs that have not ended."""
        return self.ask("squeue", "--noheader", "--format=%i").split()

    def restart_now(self, number: str) -> None:
        """Do not wait out the pause that SLURM makes before it starts a job again."""
        self.ask("scontrol", "update", f"JobId={number}", "StartTime=now")

    def end(self) -> None:
        """Kill the daemons, and what they started."""
        for step in self.ask("scontrol", "listpids").splitlines():
            if found := re.match(r"\d+", step):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(found[0]), 9)
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(15)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.root, ignore_errors=True)
