"""MLflow's server as a service starts it, without the other programs."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from services import wait_for

from infra.processes.children import die_with_parent, terminate_group
from infra.servers.loopback import free_ports, healthy
from infra.servers.service_settings import Service
from infra.service.programs import environment, environment_of, programs


@contextmanager
def mlflow_server(root: Path, host: str, variables: Mapping[str, str]) -> Iterator[str]:
    """The server that ``repro up --host HOST`` starts in ``root``; gives its address on loopback."""
    service = Service(root, "", host, *free_ports(2), 0, 0)
    service.folder.mkdir(parents=True)
    service.write()
    program = programs(service)[1]
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
    url = f"http://127.0.0.1:{service.mlflow_port}"

    def answers() -> bool:
        assert process.poll() is None, (root / "log").read_text()
        return healthy(f"{url}/health")

    try:
        wait_for(answers)
        yield url
    finally:
        terminate_group(process)
