"""Host names and origins of browsers that the servers of a service answer, as the operator set them."""

import re
from collections.abc import Mapping

from infra.errors import BadConfiguration
from infra.servers.loopback import LOOPBACK, own_names
from infra.servers.temporary_prefect import ORIGINS
from infra.service.settings import Service

PREFECT_HOSTS = "REPRO_PREFECT_ALLOWED_HOSTS"
MLFLOW_HOSTS = "MLFLOW_SERVER_ALLOWED_HOSTS"
"""Additional host names of each server, separated by commas; a port, as MLflow writes it, is ignored."""
PREFECT_ORIGINS = ORIGINS
MLFLOW_ORIGINS = "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS"
_HOST = re.compile(r"(\*|(?:\*\.)?[\w.-]+|\[[0-9a-fA-F:.]+\])(?::(?:\d+|\*))?")


def allowed_hosts(variable: str, service: Service, outer: Mapping[str, str]) -> list[str]:
    """Loopback's names, this machine's if others can reach it, and those of the ``variable``.

    Raises BadConfiguration for a malformed name.
    """
    named = []
    for name in _words(outer.get(variable, "")):
        match = _HOST.fullmatch(name)
        if not match:
            raise BadConfiguration(f"{variable} has {name!r}, allowed are names as in box.example or *.lab.example")
        named.append(match[1])
    return list(dict.fromkeys([*LOOPBACK, *own_names(service.host), *named]))


def allowed_origins(variable: str, outer: Mapping[str, str]) -> list[str]:
    """The origins that the operator set, without Prefect's default ``*``."""
    return [origin for origin in _words(outer.get(variable, "")) if origin != "*"]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
