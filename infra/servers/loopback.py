"""This machine as a host: its names, loopback, free ports, and health checks over loopback."""

import ipaddress
import socket
import urllib.request
from contextlib import ExitStack
from http.client import HTTPException

WILDCARD_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
"""Addresses that mean every one of this machine's, and loopback's of the same family."""
HEALTH_SECONDS = 3.0
_without_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def on_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def own_names(host: str) -> list[str]:
    """Names of this machine in the Host header of requests to a server that listens on ``host``, besides IP addresses.

    No other machine's DNS can give them to a page.
    """
    names = ["localhost", socket.gethostname()]
    return names if on_loopback(host) else [*names, socket.getfqdn(), host]


def free_ports(count: int) -> tuple[int, ...]:
    """Distinct ports that are free on 127.0.0.1 at the time of the call."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return tuple(probe.getsockname()[1] for probe in probes)


def healthy(address: str) -> bool:
    """Whether ``address`` answers soon with a status of 2xx. Proxies of the environment are ignored."""
    try:
        with _without_proxy.open(address, timeout=HEALTH_SECONDS):
            return True
    except (OSError, HTTPException):
        return False
