"""``repro backup``."""

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.runner.recorded_runs import read_headers
from flows.views.terminal import say
from infra.errors import BadConfiguration
from infra.processes.identity import process_state
from infra.servers import database_copies
from infra.servers.service_settings import FOLDER, uses_postgresql
from infra.service import lifecycle
from infra.service.databases import VARIABLE
from infra.site import Site


def backup(
    folder: Annotated[
        Path | None, Parameter(help="a new folder; default: one named after the time, below backups/ of the root")
    ] = None,
    *,
    restore: Annotated[
        Path | None,
        Parameter(
            help="restore the databases of this earlier backup; the service must be down, and the "
            "present databases are backed up first"
        ),
    ] = None,
) -> None:
    """Copy MLflow's and Prefect's databases of the root; works also while servers and runs use them.

    Use pg_dump for databases on PostgreSQL. Artifacts and model files are not copied: copy the root for these.

    For example:

    repro backup --restore .repro/backups/20261122T201500-000000
    """
    if folder and restore:
        raise BadConfiguration(f"--restore is {restore}, allowed is without a folder to write")
    root = Site.named().root.absolute()
    if os.environ.get(VARIABLE) or uses_postgresql(root):
        raise BadConfiguration(f"the databases of {root} are on PostgreSQL: copy them with pg_dump and pg_restore")
    if restore:
        if lifecycle.running(root / FOLDER):
            raise BadConfiguration(f"the service under {root} uses the databases; stop it with `repro down` first")
        at_work = [each for each in read_headers(root) if process_state(each.process) == "alive" and each.is_open]
        if at_work:
            raise BadConfiguration(f"{at_work[0].full_name} is at work and uses the databases; stop it first")
        for each in database_copies.restore(root, restore.absolute(), say):
            say(f"{each} is that of {restore}")
        return
    for copy in database_copies.back_up(root, (folder or database_copies.default_folder(root)).absolute()):
        print(copy)
