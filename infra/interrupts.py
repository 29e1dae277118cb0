"""Ctrl-C that cannot get lost.

A KeyboardInterrupt surfaces wherever the main thread happens to be, and a library may take it for its own cancelled
call. So it is noted as well, and asked for where work begins and while it is waited for.
"""

import signal
from types import FrameType

_came = False


def watch() -> None:
    """Note every SIGINT from now on, and raise KeyboardInterrupt as before."""
    signal.signal(signal.SIGINT, _note)


def check() -> None:
    """Raise KeyboardInterrupt if a SIGINT has come since ``watch``."""
    if _came:
        raise KeyboardInterrupt


def _note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    global _came
    _came = True
    raise KeyboardInterrupt
