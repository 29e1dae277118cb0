"""Reads and writes ``service.json``, which describes a root's service: settings, addresses, supervisor.

`repro up` writes the file; it holds no secret. Imports no heavy library, because every command reads it.
"""

import json
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from infra.errors import BadConfiguration
from infra.processes.identity import process_state
from infra.servers.loopback import WILDCARD_HOSTS
from infra.servers.relocation import same_folder

FOLDER = "service"
FILE = "service.json"
PREFECT_PORT = 4200
MLFLOW_PORT = 5000


@dataclass(frozen=True)
class Service:
    """Servers and workers of one root. ``place`` is the absolute path of its state folder on this machine."""

    place: Path
    remote: str = ""
    """The root, if it is a bucket."""
    host: str = "127.0.0.1"
    prefect_port: int = PREFECT_PORT
    mlflow_port: int = MLFLOW_PORT
    cpu_workers: int = 1
    gpu_workers: int = 0
    closed: bool = False
    """Both servers need credentials."""
    postgresql: bool = False
    """The databases are on PostgreSQL, not in files below ``place``."""
    health_ports: tuple[int, ...] = ()
    """Ports of the workers for health checks on loopback, in the order of ``pools``."""
    supervisor: str = ""
    """The identity of the supervisor process, set when all programs are healthy."""

    def __post_init__(self) -> None:
        for name in ("prefect_port", "mlflow_port"):
            if not 0 < getattr(self, name) < 65536:
                raise BadConfiguration(f"--{name.replace('_', '-')} is {getattr(self, name)}, allowed is 1 to 65535")
        if self.prefect_port == self.mlflow_port:
            raise BadConfiguration(f"--prefect-port and --mlflow-port are both {self.mlflow_port}, they must differ")
        for name in ("cpu_workers", "gpu_workers"):
            if getattr(self, name) < 0:
                raise BadConfiguration(f"--{name[:3]} is {getattr(self, name)}, allowed is 0 or above")

    @property
    def folder(self) -> Path:
        return self.place / FOLDER

    @property
    def root(self) -> str:
        """REPRO_ROOT of the workers."""
        return self.remote or str(self.place)

    @property
    def prefect(self) -> str:
        """The address of Prefect's API for this machine."""
        return f"http://{self._name}:{self.prefect_port}/api"

    @property
    def mlflow(self) -> str:
        """The address of MLflow's server for this machine."""
        return f"http://{self._name}:{self.mlflow_port}"

    @property
    def exports(self) -> Mapping[str, str]:
        """Environment variables with which any program finds both servers."""
        return {"PREFECT_API_URL": self.prefect, "MLFLOW_TRACKING_URI": self.mlflow}

    @property
    def mlflow_file(self) -> str:
        """MLflow's SQLite file, which is faster for long lists than the server; empty if there is none."""
        return "" if self.postgresql else f"{self.place / 'mlflow.db'}"

    @property
    def pools(self) -> tuple[tuple[str, int], ...]:
        """Pool and number of each worker."""
        counts = {"cpu": self.cpu_workers, "gpu": self.gpu_workers}
        return tuple((pool, number) for pool, count in counts.items() for number in range(1, count + 1))

    def check_ports(self) -> None:
        """Raise BadConfiguration if one of the ports is in use."""
        for name in ("prefect_port", "mlflow_port"):
            port = getattr(self, name)
            try:
                family, _, _, _, address = socket.getaddrinfo(self.host, port, type=socket.SOCK_STREAM)[0]
                with socket.socket(family, socket.SOCK_STREAM) as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(address)
            except (OSError, UnicodeError) as error:
                taken = f"port {port} at {self.host} is not free ({getattr(error, 'strerror', '') or error})"
                option = f"--{name.replace('_', '-')}"
                raise BadConfiguration(f"{taken}: choose another with {option}, or another --host") from None

    def write(self) -> None:
        partial = self.folder / f"{FILE}.partial"
        partial.write_text(json.dumps({**asdict(self), "place": str(self.place)}, indent=1))
        partial.replace(self.folder / FILE)

    @property
    def _name(self) -> str:
        """The host for links: the machine's name if others can reach the service and the name resolves."""
        if self.host not in WILDCARD_HOSTS:
            return f"[{self.host}]" if ":" in self.host else self.host
        try:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            socket.getaddrinfo(socket.gethostname(), None, family)  # a server on :: does not answer over IPv4
        except OSError:
            return WILDCARD_HOSTS[self.host]
        return socket.gethostname()


def read(folder: Path) -> Service:
    """Read the service last started in ``folder``. Raises FileNotFoundError if none, or if ``folder`` is a copy."""
    text = (folder / FILE).read_text()
    try:
        form: dict[str, Any] = json.loads(text)
        service = Service(**{**form, "place": Path(form["place"]), "health_ports": tuple(form["health_ports"])})
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FileNotFoundError(f"{folder / FILE} does not describe a service") from None
    if not same_folder(service.folder, folder):
        raise FileNotFoundError(f"{folder / FILE} is a copy of the one in {service.folder}")
    return service


def uses_postgresql(root: Path) -> bool:
    """Whether the databases of ``root`` are on PostgreSQL: those of its last service, running or not."""
    with suppress(OSError):
        return read(root / FOLDER).postgresql
    return False


def running_service(root: Path) -> Service | None:
    """Return the service of ``root`` if its supervisor is alive, otherwise None.

    A folder of another user is none: it would say which servers get this user's password.
    """
    try:
        places = (root / FOLDER, root / FOLDER / FILE)  # not by ``stat``: a link may lead to a folder of this user
        if any(place.lstat().st_uid != os.geteuid() for place in places):
            return None
        service = read(root / FOLDER)
    except OSError:
        return None
    return service if process_state(f"{service.supervisor}") == "alive" else None
