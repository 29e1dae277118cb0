"""``repro serve``."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from flows.views.terminal import say
from infra.errors import BadConfiguration
from infra.processes.malloc import keep_pages
from infra.servers.environment import configure_libraries
from infra.site import Site


def serve(
    *models: Annotated[str, Parameter(help="NAME@alias, NAME/version or NAME; else all versions with an alias")],
    host: Annotated[str, Parameter(help="address to serve at; the default is this machine alone")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="0 takes any that is free")] = 8765,
    engine: Annotated[
        Literal["auto", "own", "ctranslate2"], Parameter(help="auto: CTranslate2 for versions that were exported")
    ] = "auto",
    exports: Annotated[Path, Parameter(help="where repro export wrote")] = Path("exports"),
) -> None:
    """Serve a page to translate on and to look inside, and a JSON API (its pages: /docs), for registered versions.

    Ctrl-C or SIGTERM ends it when what was begun is done.

    For example:

    repro serve

    repro serve demo@champion demo/1 --port 9000
    """
    from infra.web.limits import LOOPBACK, Limits
    from infra.web.server import address, bind_socket, end_at_once
    from infra.web.server import serve as serve_until_stopped

    if not 0 <= port < 2**16:
        raise BadConfiguration(f"--port is {port}, allowed is 0 to 65535")
    site = Site.named()
    configure_libraries(site.root)
    taken = bind_socket(host, port)
    keep_pages()
    from flows.inference.served_model import load_version, select_versions
    from infra.web.app import application

    versions = []
    for version in select_versions(models, site):
        versions.append(load_version(version, site, engine, exports))
        also = "".join(f", {alias}" for alias in version.aliases)
        say(f"{versions[-1].name}{also}: {versions[-1].engine}, beam {versions[-1].search.beam}")
    inside = host in LOOPBACK or host.startswith("127.")
    if not inside:
        say(f"warning: anyone who reaches {host} can translate here; there is no password, and no encryption")
    limits = Limits()
    guarded = application(versions, limits, LOOPBACK | {host} if inside else frozenset())
    where = address(host, taken)

    def ready() -> None:
        say(f"the page is at {where} (Ctrl-C ends)")
        print(where, flush=True)

    serve_until_stopped(guarded, taken, limits, ready)
    say("stopped")
    if guarded.batcher.worker.busy:
        end_at_once()
