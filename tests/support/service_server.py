"""One server of a service as the service starts it, without the other programs."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from patience import wait_for

from infra.processes.children import die_with_parent, terminate_group
from infra.servers.loopback import free_ports, healthy
from infra.servers.service_settings import Service
from infra.service.programs import environment, environment_of, programs


@contextmanager
def service_server(root: Path, name: str, host: str, variables: Mapping[str, str]) -> Iterator[str]:
    """The server ``prefect`` or ``mlflow`` that ``repro up --host HOST`` starts; gives its address on loopback."""
    service = Service(root, "", host, *free_ports(2), 1, 0, health_ports=free_ports(1))
    service.folder.mkdir()
    (root / "prefect").mkdir()
    service.write()
    program = next(each for each in programs(service) if each.name == name)
    outer = environment(service, {**os.environ, **variables})
    with (root / "log").open("wb") as log:
        process = subprocess.Popen(
            program.command,
            env=environment_of(service, program, outer),
            cwd=root,
            start_new_session=True,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent(),
        )
    health = urlsplit(program.health)
    url = f"http://127.0.0.1:{health.port}"

    def answers() -> bool:
        assert process.poll() is None, (root / "log").read_text()
        return healthy(f"{url}{health.path}")

    try:
        wait_for(answers)
        yield url
    finally:
        terminate_group(process)
