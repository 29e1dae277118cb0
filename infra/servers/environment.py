"""Environment variables that configure Prefect and MLflow: no telemetry, longer retries, state below the root.

Both libraries read them at import. Variables that the user has set are kept.
"""

import getpass
import os
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from infra.errors import BadConfiguration
from infra.servers import credentials
from infra.servers.relocation import relocate
from infra.servers.service_settings import running_service
from infra.servers.sqlite_addresses import needs_quoting, sqlite_uri

PERSISTENT_LEASES = {"PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem"}
"""For a server that may be restarted. With leases in memory, a restart cancels each flow run that holds a lease (each
run of a deployment with a concurrency limit) when the run renews its lease."""
NO_TELEMETRY = {
    "DO_NOT_TRACK": "true",  # MLflow does not accept 1
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}
"""For every process that this project starts."""
NO_FILE = f"{Path(__file__).with_name('no-such-file')}"
HOME_SETTINGS = {"PREFECT_LOGGING_SETTINGS_PATH": NO_FILE, "PREFECT_PROFILES_PATH": NO_FILE}
"""For processes with a folder of a root as Prefect's home: others may write to a root, and these files could name code
to run or a server that gets the password."""
CLIENT_RETRIES = {
    # The growing pauses last 254 s in total, longer than a server takes to restart. The default is 62 s.
    "PREFECT_CLIENT_MAX_RETRIES": "7",
    # Missing heartbeats reveal a flow run with a dead process; with Prefect's own period of 180 s, much later.
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "60",
}
"""For every process that runs flows, including workers."""
_exported: set[str] = set()
"""The addresses that ``configure_libraries`` put into PREFECT_API_URL."""


def configure_libraries(root: Path) -> None:
    """Set the variables of Prefect and MLflow: state below ``root``, and the service of ``root`` if it runs.

    If ``root`` was moved or copied, MLflow's addresses in it are rewritten. Raises BadConfiguration if the service
    needs credentials that the environment lacks.
    """
    _ensure_home(root)
    os.environ |= past_proxies(os.environ)
    settings = {
        **NO_TELEMETRY,
        # repro has its own display. The run's page shows the log.
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
    } | CLIENT_RETRIES
    address = os.environ.get("PREFECT_API_URL", "")
    if address in _exported and address != getattr(running_service(root), "prefect", ""):
        os.environ.pop("PREFECT_API_URL", None)  # the service ended or moved in the life of a notebook
    if not server_configured():
        if "PREFECT_HOME" not in os.environ:
            home = root.absolute() / "prefect"
            if home.exists():  # only code that runs Prefect creates it
                private_folder(home)
            settings["PREFECT_HOME"] = str(home)
            settings |= prefect_database(home) | HOME_SETTINGS
        if service := running_service(root):
            if service.closed and not credentials.read_credentials(os.environ):
                raise BadConfiguration(
                    f"the service under {root} needs credentials: set REPRO_AUTH or REPRO_AUTH_FILE as for `repro up`"
                )
            os.environ["PREFECT_API_URL"] = service.prefect
            _exported.add(service.prefect)
            os.environ |= past_proxies(os.environ, service.prefect)
    credentials.export_to_environment()
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    relocate(root)


def past_proxies(environment: Mapping[str, str], *servers: str) -> dict[str, str]:
    """Return ``no_proxy`` with loopback and the hosts of these URLs added.

    A proxy for downloads cannot reach this machine's servers, and must not see their credentials.
    """
    known = environment.get("no_proxy") or environment.get("NO_PROXY", "")
    hosts = [urlsplit(server).hostname or "" for server in servers]
    return {"no_proxy": ",".join(dict.fromkeys(filter(None, [*known.split(","), "127.0.0.1", "localhost", *hosts])))}


def _ensure_home(root: Path) -> None:
    """Set a missing home folder and user name, as in some containers: Prefect's import fails without them."""
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = f"{root.absolute() / 'home'}"
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["USER"] = "unknown"


def private_folder(folder: Path) -> None:
    """Create a folder that other users cannot read: Prefect's database holds addresses of notifications."""
    # It may belong to another user, or the file system may be read-only or lack modes. Then later writes fail.
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)


def prefect_database(home: Path) -> dict[str, str]:
    """Return Prefect's database setting if ``home`` needs quoting, which the default lacks; otherwise empty."""
    if not needs_quoting(f"{home}"):
        return {}
    return {"PREFECT_SERVER_DATABASE_CONNECTION_URL": sqlite_uri(home / "prefect.db", "sqlite+aiosqlite")}


def server_configured() -> bool:
    """Whether the user configured a Prefect server, by address or in the active profile."""
    if os.environ.get("PREFECT_API_URL"):
        return True
    try:
        home = Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect")
        file = Path(os.environ.get("PREFECT_PROFILES_PATH") or home / "profiles.toml")
        profiles = tomllib.loads(file.read_text(encoding="utf-8-sig"))
        active = os.environ.get("PREFECT_PROFILE") or profiles.get("active", "")
        return bool(profiles.get("profiles", {}).get(active, {}).get("PREFECT_API_URL"))
    except (OSError, ValueError, RuntimeError):  # RuntimeError: the user has no home
        return False
