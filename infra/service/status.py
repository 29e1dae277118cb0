"""The state and health of a service's programs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from infra.servers.loopback import healthy
from infra.service.programs import programs
from infra.service.settings import Service
from infra.service.supervision import log_of, process_info


@dataclass(frozen=True)
class ProgramState:
    """One program. ``state``: starting, running, backoff (ended; will be tried again), fatal (given up) or stopped."""

    name: str
    state: str
    pid: int
    """Process id of the program's wrapper; 0: none."""
    since: str
    """Start time in UTC; empty: it does not run."""
    healthy: bool
    link: str
    log: str
    message: str
    """The supervisor's message about a program that does not run."""

    @property
    def given_up(self) -> bool:
        return self.state == "fatal"


def states(service: Service) -> list[ProgramState]:
    """The states of all programs, servers first; empty if nothing runs."""
    info = process_info(service)
    found = list[ProgramState]()
    for program in programs(service):
        if not (process := info.get(program.name)):
            continue
        pid = process["pid"]
        state = process["statename"].lower()
        is_healthy = pid > 0 and healthy(program.health)
        if is_healthy and state == "starting":  # which supervisord says for STABLE_SECONDS
            state = "running"
        found.append(
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
    return found


def as_json(found: Sequence[ProgramState]) -> dict[str, Any]:
    """The JSON form. ``running``: there is a service; ``healthy``: all its programs answer."""
    well = bool(found) and all(program.healthy for program in found)
    return {"running": bool(found), "healthy": well, "programs": [asdict(program) for program in found]}
