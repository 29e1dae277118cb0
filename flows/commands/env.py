"""``repro env``."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from infra.servers.credentials import FILE_VARIABLE, read_credentials
from infra.servers.environment import NO_TELEMETRY, configure_libraries
from infra.site import Site

LIBRARY_VARIABLES = (
    "PREFECT_HOME",
    "PREFECT_API_URL",
    "PREFECT_SERVER_DATABASE_CONNECTION_URL",
    *NO_TELEMETRY,
)
"""Of those that ``configure_libraries`` sets: what `prefect` and `mlflow` need to find the same state."""


def env() -> None:
    """Print the variables with which plain prefect and mlflow commands use this root and its servers, for the shell.

    Passwords are not printed: the lines name the variable or the file that has them.

    For example:

    eval "$(repro env)"

    prefect deployment run reproduce/demo --watch

    mlflow models serve -m models:/demo@champion --env-manager local
    """
    site = Site.named()
    configure_libraries(site.root)
    print('# for sh, bash and zsh: eval "$(repro env)"')
    for name, value in _variables(site).items():
        print(f"export {name}={quote(value)}")
    for line in (*_credentials(), *_programs()):
        print(f"export {line}")


def _variables(site: Site) -> dict[str, str]:
    root = {"REPRO_ROOT": site.remote or f"{site.root.absolute()}", "MLFLOW_TRACKING_URI": site.tracking}
    return root | {name: os.environ[name] for name in LIBRARY_VARIABLES if name in os.environ}


def _credentials() -> Iterator[str]:
    """The clients' variables of ``Credentials.for_clients``, as the shell makes them."""
    if not read_credentials(os.environ):
        return
    file = os.environ.get(FILE_VARIABLE, "")
    held = '"$REPRO_AUTH"' if os.environ.get("REPRO_AUTH") else f'"$(cat {quote(f"{Path(file).absolute()}")})"'
    yield f"PREFECT_API_AUTH_STRING={held}"
    yield 'MLFLOW_TRACKING_USERNAME="${PREFECT_API_AUTH_STRING%%:*}"'
    yield 'MLFLOW_TRACKING_PASSWORD="${PREFECT_API_AUTH_STRING#*:}"'


def _programs() -> Iterator[str]:
    """PATH with the programs of this environment in front, unless the shell finds them already."""
    programs = Path(sys.executable).parent
    if shutil.which("prefect") != f"{programs / 'prefect'}":
        yield f'PATH={quote(f"{programs}")}:"$PATH"'
