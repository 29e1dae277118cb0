"""This machine as a host: its names, loopback, free ports, and health checks over loopback."""

import ipaddress
import socket
import time
import urllib.request
from contextlib import ExitStack
from http.client import HTTPException

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Names of this machine in the Host header of a request over loopback."""
WILDCARD_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
"""Addresses that mean every one of this machine's, and loopback's of the same family."""
HEALTH_SECONDS = 3.0
SILENT_CHECKS = 12
CHECK_SECONDS = 10.0
"""Pause between two checks of a running server, and how long each waits: a silent one is noticed after four minutes."""
_without_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def on_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def own_names(host: str) -> list[str]:
    """Names in the Host header of requests to a server that listens on ``host``, besides those of LOOPBACK."""
    if on_loopback(host):
        return [f"[{host}]" if ":" in host else host]
    return list(dict.fromkeys([*machine_names(), *([] if host in WILDCARD_HOSTS else [host])]))


def machine_names() -> tuple[str, str]:
    """This machine's own names, which no other machine's DNS can give to a page."""
    return socket.gethostname(), socket.getfqdn()


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


class SilenceWatch:
    """Notices that a running server stopped answering ``address``: it is stuck, or somebody sent it SIGSTOP."""

    def __init__(self, address: str, answered: bool = False) -> None:
        """``answered``: it answered before, so that it is not starting any more."""
        self._address = address
        self._next = 0.0
        self._answered = answered
        self._unanswered = 0

    def is_silent(self) -> bool:
        """Whether it answered once and failed the last ``SILENT_CHECKS`` checks; checks every ``CHECK_SECONDS``.

        Checks are counted, not seconds, because this process may have been stopped together with the server.
        """
        if time.monotonic() < self._next:
            return False
        well = healthy(self._address, CHECK_SECONDS)
        self._next = time.monotonic() + CHECK_SECONDS
        self._answered = self._answered or well
        self._unanswered = 0 if well else self._unanswered + 1
        return self._answered and self._unanswered >= SILENT_CHECKS
