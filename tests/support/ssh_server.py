"""An sshd of this machine, on loopback, as the far machine of the launcher ``ssh``: its connections can be cut."""

import getpass
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import psutil
import pytest
from patience import wait_for

from infra.servers.loopback import free_ports

PROGRAMS = ("sshd", "ssh", "ssh-keygen", "rsync")
SERVER = """
Port {port}
ListenAddress 127.0.0.1
HostKey {root}/host
AuthorizedKeysFile {root}/user.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
MaxStartups 100
"""
CLIENT = """
Host box
    HostName 127.0.0.1
    Port {port}
    User {user}
    IdentityFile {root}/user
    IdentitiesOnly yes
    UserKnownHostsFile {root}/known
"""


class SshServer:
    """The machine ``box``. Skips the test where a program is missing."""

    def __init__(self) -> None:
        found = {name: shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") for name in PROGRAMS}
        if missing := [name for name in PROGRAMS if not found[name]]:
            pytest.skip(f"NOT RUN: no program {missing[0]!r}; the packages are openssh-server and rsync (Debian)")
        self.root = Path(tempfile.mkdtemp(prefix="sshd-"))
        self.program = f"{found['sshd']}"
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.root / name], check=True)
        port = free_ports(1)[0]
        key = (self.root / "host.pub").read_text()
        (self.root / "known").write_text(f"[127.0.0.1]:{port} {key}")
        for name, text in (("server", SERVER), ("client", CLIENT)):
            (self.root / name).write_text(text.format(port=port, root=self.root, user=getpass.getuser()))
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.options = ("-F", f"{self.root / 'client'}")
        self.start()

    def start(self) -> None:
        command = [self.program, "-D", "-f", f"{self.root / 'server'}", "-E", f"{self.root / 'log'}"]
        self.daemon = subprocess.Popen(command)
        try:
            wait_for(lambda: subprocess.run(["ssh", *self.options, "box", "true"], capture_output=True).returncode == 0)
        except BaseException:
            self.end()
            raise

    def sessions(self) -> list[psutil.Process]:
        """The processes of open connections, without what they started."""
        family = psutil.Process(self.daemon.pid).children(recursive=True)
        return [process for process in family if process.name().startswith("sshd")]

    def cut(self) -> int:
        """Kill every open connection; how many processes that were."""
        sessions = self.sessions()
        for process in sessions:
            process.send_signal(signal.SIGKILL)
        return len(sessions)

    def stop(self) -> None:
        """No connection is open or can be opened."""
        self.cut()
        self.daemon.kill()
        self.daemon.wait()

    def end(self) -> None:
        self.stop()
        shutil.rmtree(self.root, ignore_errors=True)
