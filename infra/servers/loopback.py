"""Loopback of this machine: which hosts mean it, its free ports, and health checks over it."""

import ipaddress
import socket
import urllib.request
from contextlib import ExitStack
from http.client import HTTPException

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Names of this machine in the Host header of a request over loopback."""
HEALTH_SECONDS = 3.0
_without_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def on_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def free_ports(count: int) -> tuple[int, ...]:
    """Distinct ports that are free on 127.0.0.1 at the time of the call."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return tuple(probe.getsockname()[1] for probe in probes)


def healthy(address: str, seconds: float = HEALTH_SECONDS) -> bool:
    """Whether ``address`` answers with a status of 2xx within ``seconds``. Proxies of the environment are ignored."""
    try:
        with _without_proxy.open(address, timeout=seconds):
            return True
    except (OSError, HTTPException):
        return False
