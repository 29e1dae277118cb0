"""Where the service of a root answers, for whoever runs in that root while it is up.

Comes in: the root. Goes out: the addresses that ``repro up`` wrote once all was healthy, unless their supervisor is
gone. Light: read by every command. What the service consists of is not known here.
"""

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from infra.processes.identity import process_identity, process_state
from infra.servers.relocation import same_folder

FOLDER = "service"
FILE = "addresses.json"


@dataclass(frozen=True)
class Addresses:
    """``prefect`` is the API's address, ``mlflow`` the tracking server's; ``closed``: both ask for credentials.
    ``file``: MLflow's SQLite file, where it has one; on this machine long lists are read from it in no time."""

    prefect: str
    mlflow: str
    closed: bool = False
    file: str = ""

    @property
    def exports(self) -> Mapping[str, str]:
        """The variables by which any program finds both."""
        return {"PREFECT_API_URL": self.prefect, "MLFLOW_TRACKING_URI": self.mlflow}


def write(root: Path, addresses: Addresses, supervisor: int) -> None:
    """Let commands in ``root`` find the service for as long as process ``supervisor`` lives."""
    file = root / FOLDER / FILE
    partial = file.with_suffix(".partial")
    form = {**asdict(addresses), "place": f"{root.absolute()}", "supervisor": process_identity(supervisor)}
    partial.write_text(json.dumps(form))
    partial.replace(file)


def running_addresses(root: Path) -> Addresses | None:
    """The addresses of the service that is up in ``root``; None where there is none, it is gone, or it is that of the
    root which ``root`` is a copy of."""
    try:
        form = json.loads((root / FOLDER / FILE).read_text())
        # Earlier versions of this file name the database alone.
        place = form.get("place") or (Path(form["file"]).parent if form["file"] else root)
        if process_state(form["supervisor"]) != "alive" or not same_folder(Path(place), root):
            return None
        return Addresses(form["prefect"], form["mlflow"], form["closed"], form["file"])
    except (OSError, ValueError, KeyError, IndexError, AttributeError, TypeError):
        return None


def on_loopback(host: str) -> bool:
    """Whether ``host`` is this machine to itself, and nobody else can reach it."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
