"""Finds this machine's host names and free ports, recognises loopback, and checks the health of servers."""

import ipaddress
import re
import socket
import urllib.request
from collections.abc import Iterable
from contextlib import ExitStack
from http.client import HTTPException

from infra.errors import BadConfiguration

HOST_NAME = re.compile(r"(\*|(?:\*\.)?[\w.-]+|\[[0-9a-fA-F:.]+\])(?::(?:\d+|\*))?")
"""A name of a host, ``*``, ``*.`` and a domain, or an IPv6 address; then perhaps a port."""
WILDCARD_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
"""Maps each address that means all addresses of this machine to the loopback address of its family."""
HEALTH_SECONDS = 3.0
_without_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def on_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def own_names(host: str) -> list[str]:
    """Return this machine's names (not IP addresses) in the Host header of requests to a server on ``host``.

    No foreign DNS server can give such a name to a web page.
    """
    names = ["localhost", socket.gethostname()]
    return names if on_loopback(host) else [*names, socket.getfqdn(), host]


def host_names(source: str, names: Iterable[str]) -> list[str]:
    """Return names for ``SameOrigin``, without their ports. Raises BadConfiguration that names ``source``."""
    found = []
    for name in names:
        match = HOST_NAME.fullmatch(name)
        if not match:
            raise BadConfiguration(f"{source} has {name!r}, allowed are names as in box.example or *.lab.example")
        found.append(match[1])
    return found


def free_ports(count: int) -> tuple[int, ...]:
    """Return distinct ports that are free on 127.0.0.1 at the time of the call."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return tuple(probe.getsockname()[1] for probe in probes)


def healthy(address: str) -> bool:
    """Whether ``address`` returns a 2xx status within HEALTH_SECONDS. Ignores proxies of the environment."""
    try:
        with _without_proxy.open(address, timeout=HEALTH_SECONDS):
            return True
    except (OSError, HTTPException):
        return False
