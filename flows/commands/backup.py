"""``repro backup`` and ``repro restore``."""

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.views.terminal import say
from infra.errors import BadConfiguration
from infra.servers import database_copies
from infra.servers.addresses import FOLDER, running_addresses
from infra.service import databases, lifecycle, postgresql_copies
from infra.service.databases import Databases
from infra.site import Site

DatabaseUrl = Annotated[str, Parameter(help="that of `repro up`, for databases on PostgreSQL (or REPRO_DATABASE_URL)")]


def backup(
    folder: Annotated[
        Path | None, Parameter(help="a new folder; by default one below backups/ of the root, named after the time")
    ] = None,
    *,
    database_url: DatabaseUrl = "",
) -> None:
    """Copy the databases of the root, MLflow's and Prefect's, also while servers and runs use them.

    Databases on PostgreSQL are copied by its program pg_dump. Artifacts and model files are not copied: copy the root
    for these.

    Example: repro backup
    """
    root = Site.named().root.absolute()
    place = (folder or database_copies.default_folder(root)).absolute()
    found = _postgresql(database_url)
    running = running_addresses(root)
    if running and not running.file and not found:
        raise BadConfiguration(
            f"the service of {root} uses PostgreSQL: set {databases.VARIABLE} or --database-url, as for `repro up`"
        )
    for copy in postgresql_copies.back_up(found, root, place) if found else database_copies.back_up(root, place):
        print(copy)


def restore(
    folder: Annotated[Path, Parameter(help="the folder that `repro backup` wrote")],
    *,
    database_url: DatabaseUrl = "",
) -> None:
    """Put the databases of a backup back. The service must be down; the present databases are backed up first.

    Example: repro restore .repro/backups/20261122T201500-000000
    """
    root = Site.named().root.absolute()
    if lifecycle.running(root / FOLDER):
        raise BadConfiguration(f"the service under {root} uses the databases; stop it with `repro down` first")
    place, found = folder.absolute(), _postgresql(database_url)
    restored = (
        postgresql_copies.restore(found, root, place, say) if found else database_copies.restore(root, place, say)
    )
    for each in restored:
        say(f"{each} is that of {folder}")


def _postgresql(address: str) -> Databases | None:
    """The databases of the service on PostgreSQL, None for SQLite."""
    known = address or os.environ.get(databases.VARIABLE)
    return Databases(known) if known else None
