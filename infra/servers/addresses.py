"""Addresses of the running service of a root, which every command in that root uses.

``repro up`` writes them once all programs are healthy; they are valid while its supervisor lives. Imports no heavy
library, because every command reads them.
"""

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
    """Addresses of Prefect's API and MLflow's tracking server. ``closed``: both need credentials. ``file``: MLflow's
    SQLite file, if it has one; this machine reads long lists from it faster than from the server."""

    prefect: str
    mlflow: str
    closed: bool = False
    file: str = ""

    @property
    def exports(self) -> Mapping[str, str]:
        """Environment variables with which any program finds both."""
        return {"PREFECT_API_URL": self.prefect, "MLFLOW_TRACKING_URI": self.mlflow}


def write(root: Path, addresses: Addresses, supervisor: int) -> None:
    """Publish the addresses to commands in ``root`` for as long as process ``supervisor`` lives."""
    file = root / FOLDER / FILE
    partial = file.with_suffix(".partial")
    form = {**asdict(addresses), "place": f"{root.absolute()}", "supervisor": process_identity(supervisor)}
    partial.write_text(json.dumps(form))
    partial.replace(file)


def running_addresses(root: Path) -> Addresses | None:
    """Addresses of the service running in ``root``; None if there is none, or if ``root`` is a copy of its root."""
    try:
        form = json.loads((root / FOLDER / FILE).read_text())
        if process_state(form["supervisor"]) != "alive" or not same_folder(Path(form["place"]), root):
            return None
        return Addresses(form["prefect"], form["mlflow"], form["closed"], form["file"])
    except (OSError, ValueError, KeyError, IndexError, AttributeError, TypeError):
        return None
