"""Limits of time in tests as multiples of this machine's speed now, so that a busy machine fails no test.

A limit ends a test that hangs. How long the tested work takes is no test's business: other programs decide it.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any

QUIET_SECONDS = 0.1
"""What the measured work takes on a quiet machine: a Python process that imports some modules and counts."""
WORK = "import argparse, asyncio, json, sqlite3, urllib.request; sum(range(1_000_000))"
SPARE = 10
"""How many times as long as on a quiet machine a test may take before it counts as one that hangs."""


@cache
def slowness(_minute: int) -> float:
    """How many times longer than on a quiet machine a process takes in this minute, at least 1."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", WORK], check=True)
    return max(1.0, (time.monotonic() - began) / QUIET_SECONDS)


def limit(quiet_seconds: float) -> float:
    """The seconds after which work that takes ``quiet_seconds`` on a quiet machine counts as one that hangs."""
    return quiet_seconds * SPARE * slowness(int(time.monotonic()) // 60)


def wait_for(done: Callable[[], Any], quiet_seconds: float = 60.0) -> Any:
    """Poll ``done`` and return its first true value; raises AssertionError if it hangs.

    The machine's speed is measured at the limit of a quiet one, and again at its own, as others may have come since.
    """
    began = time.monotonic()
    end = began + quiet_seconds * SPARE
    while not (found := done()):
        if time.monotonic() > end:
            end = began + limit(quiet_seconds)
            assert time.monotonic() < end, f"not done after {time.monotonic() - began:.0f} s"
        time.sleep(0.05)
    return found
