"""``mlflow server`` behind ``SameOrigin``: it refuses requests of foreign web pages as the Prefect server does.

``python -m infra.service.mlflow_app server ...`` takes MLflow's own options. MLflow itself accepts every host name that
begins like a private address (``10.attacker.example``), and every origin on loopback whatever its port.
"""

import importlib
import os
from types import FunctionType
from typing import TYPE_CHECKING, Any

from infra.servers.loopback import machine_names
from infra.service.browser_access import MLFLOW_HOSTS, MLFLOW_ORIGINS, allowed_hosts, allowed_origins
from infra.service.process_tags import folder_of
from infra.service.settings import read

if TYPE_CHECKING:
    from starlette.types import ASGIApp

APPLICATION = "REPRO_MLFLOW_APPLICATION"
"""MLflow's own application, ``module:name``, for the process that serves it."""


def main() -> None:
    """Run MLflow's command line, whose server then serves ``application``."""
    from mlflow import server
    from mlflow.cli import cli

    build: Any = server._build_uvicorn_command

    def build_guarded(options: Any, host: str, port: int, workers: int, name: str, file: Any, _: bool) -> list[str]:
        os.environ[APPLICATION] = name
        command: list[str] = build(
            options, host, port, workers, "infra.service.mlflow_app:application", file, is_factory=True
        )
        return command

    server._build_uvicorn_command = build_guarded
    cli()


def application() -> "ASGIApp":
    """MLflow's application behind ``SameOrigin``."""
    from infra.servers.same_origin import SameOrigin

    hosts = allowed_hosts(MLFLOW_HOSTS, read(folder_of(os.environ)), os.environ)
    origins = allowed_origins(MLFLOW_ORIGINS, os.environ)
    # MLflow's own checks pass what ``SameOrigin`` passes. Its origins are patterns here: with "*" any page could read.
    os.environ[MLFLOW_HOSTS] = "*"
    os.environ[MLFLOW_ORIGINS] = "http://*,https://*"
    module, _, name = os.environ[APPLICATION].partition(":")
    made = getattr(importlib.import_module(module), name)
    app = made() if isinstance(made, FunctionType) else made
    return SameOrigin(app, [*hosts, *machine_names()], origins, any_address=True)


if __name__ == "__main__":
    main()
