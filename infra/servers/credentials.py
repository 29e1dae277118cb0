"""Reads the user and password of both servers from the environment or a file, and stores them nowhere else.

Prefect and MLflow read credentials from different variables; this module derives them for servers and clients.
"""

import base64
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from infra.errors import BadConfiguration

VARIABLE = "REPRO_AUTH"
FILE_VARIABLE = "REPRO_AUTH_FILE"
MIN_PASSWORD_LENGTH = 12
"""Least number of characters of a password, because the servers do not limit login attempts."""


@dataclass(frozen=True)
class Credentials:
    """A user and a password; ``repr`` does not show the password."""

    user: str
    password: str = field(repr=False)

    @property
    def for_clients(self) -> Mapping[str, str]:
        return {
            "PREFECT_API_AUTH_STRING": f"{self.user}:{self.password}",
            "MLFLOW_TRACKING_USERNAME": self.user,
            "MLFLOW_TRACKING_PASSWORD": self.password,
        }


def read_credentials(environment: Mapping[str, str]) -> Credentials | None:
    """Read ``user:password`` from REPRO_AUTH or the file REPRO_AUTH_FILE; None if neither is set.

    Raises BadConfiguration for malformed credentials, without repeating them.
    """
    text = environment.get(VARIABLE, "")
    source = VARIABLE
    if not text and environment.get(FILE_VARIABLE):
        path = Path(environment[FILE_VARIABLE])
        source = f"{FILE_VARIABLE} ({path})"
        text = _read(path)
    if not text:
        return None
    user, colon, password = text.partition(":")
    if not (user and colon) or text != text.strip() or not text.isprintable():
        raise BadConfiguration(f"{source} is malformed, allowed is one line user:password")
    if len(password) < MIN_PASSWORD_LENGTH:
        raise BadConfiguration(
            f"the password in {source} is too short, allowed are {MIN_PASSWORD_LENGTH} characters or more"
        )
    return Credentials(user, password)


def export_to_environment() -> None:
    """Set the variables of Prefect's and MLflow's clients from the credentials, except those already set."""
    login = read_credentials(os.environ)
    for name, value in login.for_clients.items() if login else ():
        os.environ.setdefault(name, value)


def mlflow_header() -> dict[str, str]:
    """Return the Authorization header that MLflow's client would send; empty without credentials."""
    export_to_environment()
    user = os.environ.get("MLFLOW_TRACKING_USERNAME")
    password = os.environ.get("MLFLOW_TRACKING_PASSWORD")
    if user and password:
        return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _read(path: Path) -> str:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            raise BadConfiguration(f"{FILE_VARIABLE} {path} is open to others (mode {mode:04o}): chmod 600 it")
        return path.read_text().removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfiguration(f"{FILE_VARIABLE} {path} cannot be read: {type(error).__name__}") from None
