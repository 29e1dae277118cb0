"""Prefect's server as a service has it: for its own pages and for programs, with pools that start one command only.

``python -m uvicorn --factory infra.service.prefect_app:application`` serves it in the environment of ``programs``; the
service is the one whose mark that carries. Prefect is loaded late.
"""

import os
import re
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from infra.errors import BadConfiguration
from infra.servers.temporary_prefect import LOOPBACK, ORIGINS
from infra.service.pools import have_pools
from infra.service.process_marks import folder_of
from infra.service.settings import WILDCARD_HOSTS, Service, read

if TYPE_CHECKING:
    from starlette.types import ASGIApp

HOSTS = "REPRO_PREFECT_ALLOWED_HOSTS"
"""Further names by which the server is reached, separated by commas; without ports."""


def application() -> "ASGIApp":
    """Prefect's API and UI with the checks, and with the service's pools in its database before it answers."""
    from prefect.server.api.server import create_app

    from infra.servers.same_origin import SameOrigin

    service = read(folder_of(os.environ))
    app = create_app()
    started = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(each: Any) -> AsyncIterator[Any]:
        async with started(each) as state:
            await have_pools(dict.fromkeys(pool for pool, _ in service.pools))
            yield state

    app.router.lifespan_context = lifespan
    hosts, origins = allowed_hosts(service, os.environ), allowed_origins(os.environ)
    return SameOrigin(app, hosts, origins, any_address=not service.on_loopback)


def allowed_hosts(service: Service, outer: Mapping[str, str]) -> list[str]:
    """Loopback's names, where others can reach it this machine's, and the operator's. Raises BadConfiguration."""
    named = [name for each in outer.get(HOSTS, "").split(",") if (name := each.strip())]
    for name in named:
        if not re.fullmatch(r"\*|(\*\.)?[\w.-]+|\[[0-9a-fA-F:.]+\]", name):
            told = "allowed are names without a port, as in box.example or *.lab.example"
            raise BadConfiguration(f"{HOSTS} has {name!r}, {told}")
    own = [f"[{service.host}]" if ":" in service.host else service.host] if service.on_loopback else own_names(service)
    return list(dict.fromkeys([*LOOPBACK, *own, *named]))


def allowed_origins(outer: Mapping[str, str]) -> list[str]:
    """Those that the operator names; Prefect's default ``*`` counts for nothing."""
    return [origin for each in outer.get(ORIGINS, "").split(",") if (origin := each.strip()) and origin != "*"]


def own_names(service: Service) -> list[str]:
    """What this machine is called by others."""
    own = [socket.gethostname(), socket.getfqdn()]
    return list(dict.fromkeys([*own, *([] if service.host in WILDCARD_HOSTS else [service.host])]))
