"""``repro serve``."""

import os
from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import EngineOption, QuantizationOption
from flows.views.terminal import say, show
from infra.errors import BadConfiguration
from infra.processes.compute import keep_pages
from infra.servers.credentials import read_credentials
from infra.servers.loopback import host_names, on_loopback
from infra.site import configured_site

EXAMPLE = """-H 'Content-Type: application/json' -d '{"text": "Good morning."}'"""


def serve(
    *models: Annotated[str, Parameter(help="NAME@alias, NAME/version or NAME; default: every version with an alias")],
    host: Annotated[
        str, Parameter(help="address to listen on; the default accepts connections from this machine only")
    ] = "127.0.0.1",
    port: Annotated[int, Parameter(help="port to listen on; 0 picks a free one")] = 8765,
    allow_host: Annotated[
        tuple[str, ...], Parameter(help="a further host name that browsers may use, as in translate.example.org")
    ] = (),
    engine: EngineOption = "auto",
    quantization: QuantizationOption = "float32",
) -> None:
    """Serve registered model versions: a web page to translate and inspect, and a JSON API, documented at /docs.

    Ctrl-C or SIGTERM stops it after the requests in progress. With REPRO_AUTH or REPRO_AUTH_FILE it asks for a user
    and a password; to serve other machines it needs them. It refuses requests from pages of other sites.

    For example:

    repro serve demo@champion demo/1 --port 9000

    REPRO_AUTH=reader:long-enough-a-word repro serve --host 0.0.0.0 --allow-host translate.example.org
    """
    if not 0 <= port < 2**16:
        raise BadConfiguration(f"--port is {port}, allowed is 0 to 65535")
    from flows.web.limits import Limits
    from flows.web.server import Server, address, bind_socket, end_at_once

    inside = on_loopback(host)
    credentials = read_credentials(os.environ)
    if not inside and credentials is None:
        raise BadConfiguration(
            f"--host is {host!r}, which others can reach, and no password is set: set REPRO_AUTH=user:password or "
            "REPRO_AUTH_FILE, or serve at 127.0.0.1"
        )
    allowed = host_names("--allow-host", allow_host)
    site = configured_site()
    taken = bind_socket(host, port)
    keep_pages()
    from flows.inference.load_version import load_version, select_versions
    from flows.runner.find_run import recorded_name
    from flows.web.app import application, protected
    from flows.web.at_work import announced
    from flows.web.batching import Batcher
    from flows.web.served_version import ServedVersion
    from model.decoding.translation import Search

    versions = []
    for version in select_versions([*map(recorded_name, models)], site):
        loaded = load_version(version, site, engine, quantization)
        versions.append(ServedVersion(version, loaded))
        also = "".join(f", {alias}" for alias in version.aliases)
        why = loaded.engine.why_own(Search(loaded.decoding)) or loaded.engine.opened.note
        say(f"{loaded.name}{also}: {versions[-1].engine} ({why}), beam {loaded.decoding.beam}")
    if not inside:
        say(f"others can reach {host}: they need the password, and nothing is encrypted")
    limits = Limits()
    batcher = Batcher(limits)
    guarded = protected(application(versions, batcher), host, allowed, credentials)
    where = address(host, taken)

    def ready() -> None:
        say(f"serving at {where}; Ctrl-C stops. From a program ({where}/docs has all fields):")
        show(f"  curl {where}/api/translate {'-u USER ' if credentials else ''}{EXAMPLE}", aside=True)
        print(where, flush=True)

    with announced(site.root, [each.name for each in versions], where):
        Server(guarded, limits, ready).run(sockets=[taken])
    say("stopped")
    if batcher.busy:
        end_at_once()
