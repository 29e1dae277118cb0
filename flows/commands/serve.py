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
    *models: Annotated[str, Parameter(help="NAME@alias, NAME/version or NAME; default: every version with an alias")],
    host: Annotated[
        str, Parameter(help="address to listen on; the default accepts connections from this machine only")
    ] = "127.0.0.1",
    port: Annotated[int, Parameter(help="port to listen on; 0 picks a free one")] = 8765,
    engine: Annotated[
        Literal["auto", "own", "ctranslate2"], Parameter(help="auto: CTranslate2 for versions exported to it, else own")
    ] = "auto",
    exports: Annotated[Path, Parameter(help="folder that repro export writes to")] = Path("exports"),
) -> None:
    """Serve registered model versions: a web page to translate and inspect, and a JSON API, documented at /docs.

    Ctrl-C or SIGTERM stops it once requests in progress are answered.

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
        say(f"warning: anyone who can connect to {host} can use this server; it has no password and no encryption")
    limits = Limits()
    guarded = application(versions, limits, LOOPBACK | {host} if inside else frozenset())
    where = address(host, taken)

    def ready() -> None:
        say(f"serving at {where}; Ctrl-C stops")
        print(where, flush=True)

    serve_until_stopped(guarded, taken, limits, ready)
    say("stopped")
    if guarded.batcher.worker.busy:
        end_at_once()
