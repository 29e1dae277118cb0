"""A Ceph cluster of this machine alone, with its S3 server: ceph-mon, ceph-osd and radosgw in a temporary folder."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import wait_for
from s3_server import KEY, SECRET

from infra.processes.children import die_with_parent
from infra.servers.loopback import free_ports

PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw", "ceph", "radosgw-admin")
CONFIGURATION = """
[global]
fsid = {cluster}
mon host = v2:127.0.0.1:{monitor}/0
public addr = 127.0.0.1
keyring = {root}/keyring
run dir = {root}
admin socket = {root}/$name.asok
log file = {root}/$name.log
mon data = {root}/mon
osd data = {root}/osd
bluestore block size = 8G
bluestore cache autotune = false
bluestore cache size = 64M
osd pool default size = 1
osd pool default min size = 1
mon allow pool size one = true
osd pool default pg num = 4
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon max pg per osd = 1000
paxos propose interval = 0.05
paxos min wait = 0.01
rgw frontends = beast endpoint=127.0.0.1:{port}
rgw thread pool size = 64
rgw bucket quota ttl = 0
"""
MAKE_KEYS = """
ceph-authtool -C {root}/keyring --gen-key -n mon. --cap mon 'allow *'
ceph-authtool {root}/keyring --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *'
ceph-authtool {root}/keyring --gen-key -n osd.0 --cap mon 'allow profile osd' --cap osd 'allow *'
monmaptool --create --addv a [v2:127.0.0.1:{monitor}] --fsid {cluster} {root}/monmap
ceph-mon -i a --mkfs --monmap {root}/monmap --keyring {root}/keyring
"""


class Cluster:
    """One user, whose credentials are KEY and SECRET. Skips the test where Ceph is not installed."""

    def __init__(self) -> None:
        missing = [program for program in PROGRAMS if not shutil.which(program)]
        if missing:
            packages = "ceph-mon, ceph-osd, radosgw and ceph-common"
            pytest.skip(f"NOT RUN: no program {missing[0]!r}; the packages are {packages} (Debian)")
        self.root = Path(tempfile.mkdtemp(prefix="ceph-"))
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        monitor, port = free_ports(2)
        self.address = f"http://127.0.0.1:{port}"
        cluster, disk = str(uuid.uuid4()), str(uuid.uuid4())
        names = {"root": self.root, "monitor": monitor, "port": port, "cluster": cluster}
        (self.root / "ceph.conf").write_text(CONFIGURATION.format(**names))
        for folder in ("mon", "osd"):
            (self.root / folder).mkdir()
        try:
            for line in MAKE_KEYS.format(**names).strip().splitlines():
                self.ask(*shlex.split(line))
            self._start("ceph-mon", "-i", "a")
            self.ask("ceph", "osd", "new", disk)
            self.ask("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", disk)
            self._start("ceph-osd", "-i", "0")
            self.start_gateway()
            self.add_user("tests", KEY, SECRET)
        except BaseException:
            self.end()
            raise

    def ask(self, *words: str) -> str:
        """What a program prints, which must succeed."""
        given = {"capture_output": True, "text": True, "env": self._environment, "timeout": 120}
        done = subprocess.run(words, check=False, **given)  # type: ignore[call-overload]
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
        return str(done.stdout)

    def add_user(self, name: str, key: str, secret: str) -> None:
        words = (f"--uid={name}", f"--display-name={name}", f"--access-key={key}", f"--secret-key={secret}")
        self.ask("radosgw-admin", "user", "create", *words)

    def limit_objects(self, bucket: str, count: int) -> None:
        """Let the bucket hold at most so many objects; -1 for any number."""
        self.ask(
            "radosgw-admin", "quota", "set", "--quota-scope=bucket", f"--bucket={bucket}", f"--max-objects={count}"
        )
        self.ask("radosgw-admin", "quota", "enable", "--quota-scope=bucket", f"--bucket={bucket}")

    def start_gateway(self) -> None:
        """Start radosgw, on the port that it had before, and wait until it answers."""
        self._start("radosgw", "-n", "client.admin")
        wait_for(self._answers)

    @contextlib.contextmanager
    def gateway_away(self, number: signal.Signals) -> Iterator[None]:
        """Kill radosgw or, with SIGSTOP, let it answer nobody, until the block ends."""
        gateway = self.daemons["radosgw"]
        gateway.send_signal(number)
        yield
        if number == signal.SIGSTOP:
            gateway.send_signal(signal.SIGCONT)
        else:
            gateway.wait()
            self.start_gateway()

    def end(self) -> None:
        for daemon in reversed(self.daemons.values()):
            daemon.kill()
            daemon.wait()
        shutil.rmtree(self.root, ignore_errors=True)

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "CEPH_CONF": f"{self.root}/ceph.conf"}

    def _start(self, *words: str) -> None:
        with (self.root / f"{words[0]}.out").open("ab") as log:
            given = {"stdout": log, "stderr": log, "env": self._environment, "preexec_fn": die_with_parent()}
            self.daemons[words[0]] = subprocess.Popen([*words, "-f"], **given)  # type: ignore[call-overload]

    def _answers(self) -> bool:
        assert self.daemons["radosgw"].poll() is None, (self.root / "radosgw.out").read_text()[-2000:]
        try:
            with urllib.request.urlopen(self.address, timeout=5):
                return True
        except OSError:
            return False
