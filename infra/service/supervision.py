"""supervisord, as the service has it: its settings, its start and end, and how it is asked.

Comes in: a Service. Goes out: child processes that are started again when they die, with logs that are rotated. What
the programs are is told by ``programs``; what they answer is no matter here.
"""

import contextlib
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from xmlrpc.client import Fault as RpcFault
from xmlrpc.client import ServerProxy, Transport

from infra.errors import JobFailed
from infra.processes import signals
from infra.processes.children import die_with_parent
from infra.servers.addresses import FILE as ADDRESSES
from infra.service.process_marks import end_all, tagged_pids
from infra.service.programs import environment, programs
from infra.service.settings import Service
from infra.service.supervised import STOP_SECONDS

PID = "supervisord.pid"
LOG_BYTES = "10MB"
LOGS_KEPT = 3
ANSWER_SECONDS = 60.0
"""For the supervisor itself to answer; it takes under a second where the machine is not busy."""
STUCK_SECONDS = 20.0
"""One that runs and takes longer is stuck, or the machine is."""
DOWN_SECONDS = 2 * STOP_SECONDS + 5
"""Workers, then servers; hardly ever needed in full."""
STABLE_SECONDS = 10
"""A program that ends sooner failed to start, and is tried again after growing pauses, RETRIES times."""
RETRIES = 3


@dataclass(frozen=True)
class ProcessInfo:
    """What the supervisor says of a program; ``state`` in its own words, ``since`` in seconds since 1970."""

    name: str
    state: str
    pid: int
    since: int
    told: str


def log_of(service: Service, name: str) -> Path:
    return service.folder / "logs" / f"{name}.log"


def configuration(service: Service) -> str:
    """The file that supervisord reads, in the service's folder. It holds no secret: those are inherited."""
    # Paths are told as seen from there: it would read more than a name into some of the folder's characters.
    logs, socket = Path("logs"), Path(service.socket)
    kept = {"maxbytes": LOG_BYTES, "backups": LOGS_KEPT}
    sections: dict[str, dict[str, object]] = {
        "unix_http_server": {"file": socket.name if socket.parent == service.folder else socket, "chmod": "0700"},
        "supervisord": {
            "logfile": logs / "supervisord.log",
            **{f"logfile_{name}": value for name, value in kept.items()},
            "pidfile": PID,
            "childlogdir": logs,
            "nodaemon": "true",
            "silent": "true",
        },
        "rpcinterface:supervisor": {
            "supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"
        },
    }
    groups: dict[str, list[str]] = {"servers": [], "workers": []}
    for program in programs(service):
        groups["servers" if program.serves else "workers"].append(program.name)
        sections[f"program:{program.name}"] = {
            "command": shlex.join([sys.executable, "-m", "infra.service.supervised", program.name]),
            "autorestart": "true",
            "startsecs": STABLE_SECONDS,
            "startretries": RETRIES,
            "stopwaitsecs": round(STOP_SECONDS),
            "killasgroup": "true",
            "redirect_stderr": "true",
            "stdout_logfile": logs / log_of(service, program.name).name,
            **{f"stdout_logfile_{name}": value for name, value in kept.items()},
        }
    # Groups end one after the other, the last one first; the programs of one end together.
    for number, (name, members) in enumerate(groups.items()):
        if members:
            sections[f"group:{name}"] = {"programs": ",".join(members), "priority": number}
    blocks = [[f"[{name}]", *(f"{k}={_escaped(v)}" for k, v in values.items())] for name, values in sections.items()]
    return "\n".join("\n".join([*block, ""]) for block in blocks)


def start(service: Service, outer: Mapping[str, str], foreground: bool) -> subprocess.Popen[bytes]:
    """Start supervisord with ``outer`` as its environment; it outlives this process unless ``foreground``."""
    config = service.folder / "supervisord.conf"
    (service.folder / "logs").mkdir(exist_ok=True)
    config.touch(0o600)
    config.write_text(configuration(service))
    socket = Path(service.socket)
    socket.unlink(missing_ok=True)
    with (service.folder / "logs" / "supervisord.out").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "supervisor.supervisord", "--configuration", config.name],
            cwd=service.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent() if foreground else None,
            env=environment(service, outer),
        )
    deadline = time.monotonic() + ANSWER_SECONDS
    while not supervisor_of(service):
        if process.poll() is not None or time.monotonic() > deadline:
            last = Path(output.name).read_text(errors="replace").strip().splitlines()[-1:]
            raise JobFailed(f"supervisord did not start; see {service.folder / 'logs'}: {' '.join(last)}")
        signals.wait(0.1)
    return process


def supervisor_of(service: Service) -> int:
    """The process id of the supervisor; 0: there is none. Raises JobFailed for one that does not answer."""
    try:
        return int(_rpc(service).getPID())
    except (TimeoutError, BlockingIOError):  # the latter: nobody takes callers any more
        raise JobFailed(
            f"the supervisor does not answer within {STUCK_SECONDS:.0f} s; `repro down` ends it; "
            f"see {service.folder / 'logs'}"
        ) from None
    except (OSError, HTTPException, RpcFault):
        return 0


def children(service: Service) -> list[ProcessInfo]:
    """What runs, in the order of ``programs``; empty where no supervisor answers."""
    try:
        told = {each["name"]: each for each in _rpc(service).getAllProcessInfo()}
    except (OSError, HTTPException, RpcFault):
        return []
    names = [program.name for program in programs(service) if program.name in told]
    return [
        ProcessInfo(n, t["statename"].lower(), t["pid"], t["start"], t["spawnerr"]) for n in names for t in [told[n]]
    ]


def revive(service: Service) -> list[str]:
    """Start again what the supervisor has given up, or somebody stopped; gives the names."""
    asked, given_up = _rpc(service), []
    for each in asked.getAllProcessInfo():
        if each["statename"] in ("FATAL", "STOPPED", "EXITED"):
            asked.startProcess(f"{each['group']}:{each['name']}", False)
            given_up.append(str(each["name"]))
    return given_up


def stop(service: Service) -> bool:
    """End the supervisor and everything below it; gives whether there was anything."""
    (service.folder / ADDRESSES).unlink(missing_ok=True)
    pid = 0
    with contextlib.suppress(JobFailed):  # it is stuck, and ended with what is left
        pid = supervisor_of(service)
    if pid:
        with contextlib.suppress(OSError, HTTPException, RpcFault):  # it is on its way out already
            _rpc(service).shutdown()
        deadline = time.monotonic() + DOWN_SECONDS
        while pid in tagged_pids(service.folder) and time.monotonic() < deadline:
            time.sleep(0.1)
    left = end_leftovers(service.folder)
    for name in (service.socket, str(service.folder / PID)):
        Path(name).unlink(missing_ok=True)
    spare = Path(service.socket).parent
    if service.socket and spare != service.folder:
        shutil.rmtree(spare, ignore_errors=True)
    return bool(pid or left)


def end_leftovers(folder: Path, seconds: float = 3.0) -> int:
    """End what is left of a service whose supervisor is gone; gives how many processes there were."""
    return end_all(lambda: tagged_pids(folder), seconds)


def spare_folder() -> Path:
    """A new folder with a short path, for this user alone."""
    return Path(tempfile.mkdtemp(prefix="repro-"))


def _rpc(service: Service) -> Any:
    return ServerProxy("http://supervisor/RPC2", transport=_UnixSocketTransport(service.socket)).supervisor


class _UnixSocketTransport(Transport):
    """Over a socket of the file system, with an end to its patience: supervisor's own transport has none."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, host: Any) -> HTTPConnection:
        connection = HTTPConnection(host)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(STUCK_SECONDS)
        connection.sock.connect(self._path)
        return connection


def _escaped(value: object) -> str:
    return str(value).replace("%", "%%")
