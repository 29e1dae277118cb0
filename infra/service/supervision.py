"""Configures, starts and stops supervisord for a service; reads the state and health of its programs.

supervisord restarts the programs of ``infra.service.programs`` when they die and rotates their logs. Its interface is
XML-RPC.
"""

import contextlib
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from xmlrpc.client import Fault as RpcFault
from xmlrpc.client import ServerProxy, Transport

from infra.errors import JobFailed
from infra.processes import children, signals
from infra.processes.children import last_line
from infra.servers.loopback import healthy
from infra.servers.service_settings import Service
from infra.service.process_tags import end_all, tagged_pids, wait_until_none
from infra.service.programs import environment, programs
from infra.service.supervised import STOP_SECONDS

PID = "supervisord.pid"
SOCKET = "supervisor.sock"
ANSWER_SECONDS = 60.0
"""How long the supervisor may take to start; on an idle machine it takes under a second."""
STUCK_SECONDS = 20.0
"""A running supervisor, or its machine, is stuck if an answer takes longer."""
DOWN_SECONDS = 2 * STOP_SECONDS + 5
"""How long the end may take: workers end first, then servers. Most ends are faster."""
STABLE_SECONDS = 10
"""A program that ends sooner has failed to start; it is restarted RETRIES times with growing pauses."""
RETRIES = 3


@dataclass(frozen=True)
class ProgramState:
    """One program. ``state``: starting, running, backoff (ended, restarts soon), fatal (no more restarts), stopped."""

    name: str
    state: str
    pid: int
    """Process id of the program's wrapper; 0: no process."""
    since: str
    """Start time in UTC; empty if it does not run."""
    healthy: bool
    link: str
    log: str
    message: str
    """The supervisor's message about a program that does not run."""


def log_of(service: Service, name: str) -> Path:
    return service.folder / "logs" / f"{name}.log"


def configuration(service: Service) -> str:
    """Return the content of supervisord.conf. It has no secrets: programs inherit secrets from the environment."""
    # Paths are relative, because the name of the service's folder may contain characters that supervisord interprets.
    logs = Path("logs")
    kept = {"maxbytes": "10MB", "backups": 3}
    sections: dict[str, dict[str, object]] = {
        # supervisord makes the path absolute. A socket's path has at most 107 bytes; the folder's path may be longer.
        "unix_http_server": {"file": f"/proc/self/cwd/{SOCKET}", "chmod": "0700"},
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
        groups["workers" if program.is_worker else "servers"].append(program.name)
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
    # Groups end one by one, the last first; the programs of one group end together.
    for number, (name, members) in enumerate(groups.items()):
        if members:
            sections[f"group:{name}"] = {"programs": ",".join(members), "priority": number}
    blocks = [
        [f"[{name}]", *(f"{k}={v}".replace("%", "%%") for k, v in values.items())] for name, values in sections.items()
    ]
    return "\n".join("\n".join([*block, ""]) for block in blocks)


def start(service: Service, outer: Mapping[str, str], foreground: bool) -> subprocess.Popen[bytes]:
    """Start supervisord with ``outer`` as its environment; it outlives this process unless ``foreground``."""
    config = service.folder / "supervisord.conf"
    (service.folder / "logs").mkdir(exist_ok=True)
    config.touch(0o600)
    config.write_text(configuration(service))
    (service.folder / SOCKET).unlink(missing_ok=True)
    with (service.folder / "logs" / "supervisord.out").open("wb") as output:
        words = [sys.executable, "-m", "supervisor.supervisord", "--configuration", config.name]
        inherited = environment(service, outer)
        process = children.start(words, output, inherited, outlives=not foreground, cwd=service.folder)
    deadline = time.monotonic() + ANSWER_SECONDS
    while not supervisor_of(service):
        if process.poll() is not None or time.monotonic() > deadline:
            raise JobFailed(f"supervisord did not start; see {service.folder / 'logs'}: {last_line(Path(output.name))}")
        signals.wait(0.1)
    return process


def supervisor_of(service: Service) -> int:
    """Return the supervisor's process id; 0 if there is none. Raises JobFailed if it does not answer."""
    try:
        return int(_rpc(service).getPID())
    except (TimeoutError, BlockingIOError):  # BlockingIOError: the backlog of its socket is full
        raise JobFailed(
            f"the supervisor does not answer within {STUCK_SECONDS:.0f} s; `repro down` ends it; "
            f"see {service.folder / 'logs'}"
        ) from None
    except (OSError, HTTPException, RpcFault):
        return 0


def _process_info(service: Service) -> dict[str, dict[str, Any]]:
    """Map program names to supervisord's process info; empty if no supervisor answers."""
    try:
        return {info["name"]: info for info in _rpc(service).getAllProcessInfo()}
    except (OSError, HTTPException, RpcFault):
        return {}


def states(service: Service) -> list[ProgramState]:
    """Return the states of all programs, servers first; empty if nothing runs."""
    info = _process_info(service)
    listed = list[ProgramState]()
    for program in programs(service):
        if not (process := info.get(program.name)):
            continue
        pid = process["pid"]
        state = process["statename"].lower()
        is_healthy = pid > 0 and healthy(program.health)
        if is_healthy and state == "starting":  # supervisord reports "starting" for STABLE_SECONDS
            state = "running"
        listed.append(
            ProgramState(
                name=program.name,
                state=state,
                pid=pid,
                since=datetime.fromtimestamp(process["start"], UTC).isoformat(timespec="seconds") if pid else "",
                healthy=is_healthy,
                link=program.link,
                log=str(log_of(service, program.name)),
                message=process["spawnerr"],
            )
        )
    return listed


def as_json(listed: Sequence[ProgramState]) -> dict[str, Any]:
    """Return the JSON form. ``running``: there is a service; ``healthy``: all its programs answer."""
    well = bool(listed) and all(program.healthy for program in listed)
    return {"running": bool(listed), "healthy": well, "programs": [asdict(program) for program in listed]}


def revive(service: Service) -> list[str]:
    """Restart programs that failed, ended or were stopped; return their names."""
    ended = ("FATAL", "STOPPED", "EXITED")
    stopped = [program for program in _process_info(service).values() if program["statename"] in ended]
    for program in stopped:
        _rpc(service).startProcess(f"{program['group']}:{program['name']}", False)
    return [str(program["name"]) for program in stopped]


def stop(service: Service) -> bool:
    """End the supervisor and all processes of the service; return whether there were any."""
    replace(service, supervisor="").write()  # from now on no command uses the service
    pid = 0
    with contextlib.suppress(JobFailed):  # a stuck supervisor ends with the leftovers below
        pid = supervisor_of(service)
    if pid:
        with contextlib.suppress(OSError, HTTPException, RpcFault):  # it is already shutting down
            _rpc(service).shutdown()
        wait_until_none(lambda: {pid} & tagged_pids(service.folder), DOWN_SECONDS)
    left = end_leftovers(service.folder)
    for name in (SOCKET, PID):
        (service.folder / name).unlink(missing_ok=True)
    return bool(pid or left)


def end_leftovers(folder: Path) -> int:
    """End the processes of a service without a supervisor; return their number."""
    return end_all(lambda: tagged_pids(folder), 3.0)


def _rpc(service: Service) -> Any:
    return ServerProxy("http://supervisor/RPC2", transport=_UnixSocketTransport(service.folder)).supervisor


class _UnixSocketTransport(Transport):
    """XML-RPC over the supervisor's Unix socket with a timeout, which supervisor's own transport lacks."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def make_connection(self, host: Any) -> HTTPConnection:
        connection = HTTPConnection(host)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(STUCK_SECONDS)
        # A short path to the socket, like the one in the configuration.
        folder = os.open(self._folder, os.O_PATH)
        try:
            connection.sock.connect(f"/proc/self/fd/{folder}/{SOCKET}")
        finally:
            os.close(folder)
        return connection
