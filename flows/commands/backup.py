"""``repro backup`` and ``repro restore``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.views.terminal import say
from infra.errors import BadConfiguration
from infra.servers import database_copies
from infra.servers.addresses import FOLDER
from infra.service import lifecycle
from infra.site import Site


def backup(
    folder: Annotated[
        Path | None, Parameter(help="a new folder; by default one below backups/ of the root, named after the time")
    ] = None,
) -> None:
    """Copy the databases of the root, MLflow's and Prefect's, also while servers and runs use them.

    Artifacts and model files are not copied: copy the root for these.

    Example: repro backup
    """
    root = Site.named().root.absolute()
    for copy in database_copies.back_up(root, (folder or database_copies.default_folder(root)).absolute()):
        print(copy)


def restore(
    folder: Annotated[Path, Parameter(help="the folder that `repro backup` wrote")],
) -> None:
    """Put the databases of a backup back. The service must be down; the present databases are backed up first.

    Example: repro restore .repro/backups/20261122T201500-000000
    """
    root = Site.named().root.absolute()
    if lifecycle.running(root / FOLDER):
        raise BadConfiguration(f"the service under {root} uses the databases; stop it with `repro down` first")
    for place in database_copies.restore(root, folder.absolute(), say):
        say(f"{place} is that of {folder}")
