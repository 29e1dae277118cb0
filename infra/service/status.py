"""What of a service runs, and whether it answers: for people, and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from infra.service.health import healthy
from infra.service.programs import programs
from infra.service.settings import Service
from infra.service.supervision import children, log_of


@dataclass(frozen=True)
class ProgramState:
    """One program. ``state``: starting, running, backoff (ended; will be tried again), fatal (given up) or stopped."""

    name: str
    state: str
    pid: int
    """Of the process that holds the program; 0: none."""
    since: str
    """When it was started, in UTC; empty: it does not run."""
    healthy: bool
    link: str
    log: str
    told: str
    """What the supervisor says of a program that does not run."""

    @property
    def given_up(self) -> bool:
        return self.state == "fatal"


def states(service: Service) -> list[ProgramState]:
    """Each program's state, servers first; empty where nothing runs."""
    known = {program.name: program for program in programs(service)}
    found = []
    for child in children(service):
        program = known[child.name]
        well = child.pid > 0 and healthy(program.health)
        # The supervisor calls it starting for a while whatever it answers.
        state = "running" if well and child.state == "starting" else child.state
        since = datetime.fromtimestamp(child.since, UTC).isoformat(timespec="seconds") if child.pid else ""
        log = str(log_of(service, child.name))
        found.append(ProgramState(child.name, state, child.pid, since, well, program.link, log, child.told))
    return found


def as_json(found: Sequence[ProgramState]) -> dict[str, Any]:
    """``running``: whether there is a service; ``healthy``: whether all of it answers."""
    well = bool(found) and all(each.healthy for each in found)
    return {"running": bool(found), "healthy": well, "programs": [asdict(each) for each in found]}
