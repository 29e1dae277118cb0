"""Whether a program answers: its ``/health`` asked over loopback, past any proxy."""

import urllib.request
from http.client import HTTPException

from infra.processes import signals

ANSWER_SECONDS = 3.0
POLL_SECONDS = 0.5
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def healthy(address: str, seconds: float = ANSWER_SECONDS) -> bool:
    """Whether ``address`` answers with a status of 2xx within ``seconds``."""
    try:
        with _direct.open(address, timeout=seconds):
            return True
    except (OSError, HTTPException):
        return False


def wait_for(address: str) -> None:
    """Wait until ``address`` is healthy, for as long as it takes; a signal ends it."""
    while not healthy(address):
        signals.wait(POLL_SECONDS)
