"""Test of a training over two hosts: two connected network namespaces with their own host names."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from patience import limit
from small_training import TRAINING, weights, write_job

from infra.launch.job import JobSpec, command, variables
from infra.processes.children import PROJECT_ROOT

PROGRAMS = ("ip", "unshare", "mount", "hostname")
NAMES = ("first-node", "second-node")


@dataclass(frozen=True)
class Host:
    """A network namespace with its host name and its /etc/hosts."""

    space: str
    name: str
    hosts: Path

    def start(self, arguments: list[str], environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
        """Start a program on this host."""
        inside = 'mount --bind "$1" /etc/hosts && hostname "$2" && shift 2 && exec "$@"'
        outside = ["ip", "netns", "exec", self.space, "unshare", "--uts", "sh", "-c", inside, "sh"]
        with log.open("ab") as output:
            command = [*outside, f"{self.hosts}", self.name, *arguments]
            return subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)


@pytest.fixture
def two_hosts(tmp_path: Path) -> Iterator[list[Host]]:
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        pytest.skip(f"NOT RUN: no program {missing[0]!r}; the package is iproute2, mount, util-linux or hostname")
    spaces = [f"repro-{os.getpid()}-{number}" for number in (1, 2)]
    cable = [f"rp{os.getpid() % 100_000}{end}" for end in "ab"]
    names = tmp_path / "hosts"
    addresses = ("10.201.7.1", "10.201.7.2")
    names.write_text("127.0.0.1 localhost\n" + "".join(f"{a} {n}\n" for a, n in zip(addresses, NAMES, strict=True)))

    def ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    try:
        try:
            for space in spaces:
                ip("netns", "add", space)
            ip("link", "add", cable[0], "type", "veth", "peer", "name", cable[1])
            for space, end, address in zip(spaces, cable, addresses, strict=True):
                ip("link", "set", end, "netns", space)
                ip("-netns", space, "address", "add", f"{address}/24", "dev", end)
                for device in (end, "lo"):
                    ip("-netns", space, "link", "set", device, "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"NOT RUN: no network namespaces here: {error.stderr.decode().strip()}")
        yield [Host(space, name, names) for space, name in zip(spaces, NAMES, strict=True)]
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)


@pytest.mark.slow
def test_two_hosts_train_to_the_weights_of_two_ranks_on_one(two_hosts: list[Host], tmp_path: Path) -> None:
    training = replace(TRAINING, updates=40, checkpoint_every=20, dev_every=40)
    near, far = (
        job_of(write_job(tmp_path, name=name, training=training), nodes) for name, nodes in (("near", 1), ("far", 2))
    )
    environment = {**os.environ, **variables(near), "PYTHONPATH": f"{PROJECT_ROOT}"}
    subprocess.run(command(near, sys.executable), check=True, env=environment, timeout=limit(60.0))
    rendezvous = ("--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={NAMES[0]}:29400", "--rdzv-id=far")
    agents = [
        host.start(command(far, sys.executable, rendezvous), environment, tmp_path / f"{host.name}.log")
        for host in two_hosts
    ]
    try:
        statuses = [agent.wait(250) for agent in agents]
    finally:
        for agent in agents:
            agent.kill()
            agent.wait()
    logs = [(tmp_path / f"{name}.log").read_text() for name in NAMES]
    assert statuses == [0, 0], "\n".join(logs)
    assert weights(near.path).keys() == {"00000020", "00000040"}
    assert weights(far.path) == weights(near.path)


def job_of(path: Path, nodes: int) -> JobSpec:
    document = json.loads(path.read_text())
    inputs = {name: Path(folder) for name, folder in document["inputs"].items()}
    return JobSpec(
        "model.train", document["config"], inputs, path.parent, document["site"], 2, distributed=True, nodes=nodes
    )
