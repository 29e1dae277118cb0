"""Prefect and MLflow as this project runs them: no calls to the outside, a server of their own only where none is set.

Called before either library is imported. What the user's environment says comes first.
"""

import logging
import os
import tomllib
from pathlib import Path

from infra.errors import BadConfiguration
from infra.servers import addresses, credentials
from infra.servers.library_settings import CLIENT_RETRIES, NO_TELEMETRY
from infra.servers.relocation import relocate
from infra.servers.sqlite_addresses import needs_quoting, sqlite_uri


def configure_libraries(root: Path) -> None:
    """Set what Prefect and MLflow read from the environment; their state goes below ``root``, whose service is used.

    Where ``root`` was moved or copied, MLflow's addresses in it are rewritten.
    """
    settings = {
        **NO_TELEMETRY,
        # Our own display says what happens; the run's page has the log.
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
    } | CLIENT_RETRIES
    if not server_configured():
        if "PREFECT_HOME" not in os.environ:
            home = root.absolute() / "prefect"
            home.mkdir(parents=True, exist_ok=True)  # Prefect makes the last folder only
            settings["PREFECT_HOME"] = str(home)
            settings |= prefect_database(home)
        if served := addresses.running_addresses(root):
            if served.closed and not credentials.read_credentials(os.environ):
                ask = "asks for credentials: set REPRO_AUTH or REPRO_AUTH_FILE as for `repro up`"
                raise BadConfiguration(f"the service under {root} {ask}")
            os.environ["PREFECT_API_URL"] = served.prefect
    credentials.export_to_environment()
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    logging.getLogger("alembic").setLevel(logging.ERROR)
    relocate(root)


def prefect_database(home: Path) -> dict[str, str]:
    """The variable by which Prefect finds its database in ``home``, where it would look elsewhere by itself."""
    if not needs_quoting(f"{home}"):
        return {}
    return {"PREFECT_SERVER_DATABASE_CONNECTION_URL": sqlite_uri(home / "prefect.db", "sqlite+aiosqlite")}


def server_configured() -> bool:
    """Whether the user has a Prefect server of their own, by address or by the profile in force."""
    if os.environ.get("PREFECT_API_URL"):
        return True
    try:
        file = Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect") / "profiles.toml"
        profiles = tomllib.loads(file.read_text())
        active = os.environ.get("PREFECT_PROFILE") or profiles.get("active", "")
        return bool(profiles.get("profiles", {}).get(active, {}).get("PREFECT_API_URL"))
    except (OSError, ValueError):
        return False
