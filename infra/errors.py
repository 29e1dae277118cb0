"""Errors with a one-sentence message for people. The class says whether a retry can help."""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

INTERRUPTED = "interrupted"
"""The recorded reason of work that Ctrl-C or SIGTERM ended."""


class Fault(Exception):
    """An error with one clear sentence. Not retried unless its class says so."""

    retry = False


def describe(error: BaseException) -> str:
    """Return a fault's sentence, INTERRUPTED after a signal, or the class name and message of any other error."""
    if not isinstance(error, Exception):
        return INTERRUPTED
    return f"{error}" if isinstance(error, Fault) else f"{type(error).__name__}: {error}"


class BadConfiguration(Fault):
    """The run, the site or the command line has an invalid setting."""


@contextmanager
def bad_values(prefix: str = "") -> Iterator[None]:
    """Turn a ValueError in this block into BadConfiguration with its sentence after ``prefix``."""
    try:
        yield
    except ValueError as error:
        raise BadConfiguration(f"{prefix}{error}") from error


class BadData(Fault):
    """The text, a shard, a checkpoint or another input is damaged or malformed."""


class OutOfMemory(Fault):
    """A batch did not fit."""


class NoSpace(Fault):
    """The disk is full."""


class Diverged(Fault):
    """Loss or gradient stopped being finite."""


class NetworkFault(Fault):
    """A server did not answer, or the connection broke."""

    retry = True


class DiskFault(Fault):
    """A disk, usually a network disk, cannot be read or written for now."""

    retry = True


class Preempted(Fault):
    """A cluster or a signal ended the job, which first wrote a checkpoint."""

    retry = True


class JobFailed(Fault):
    """A job ended without a reason (killed, crashed); its node may be gone."""

    retry = True


BY_REASON: dict[str, type[Fault]] = {
    "preempted": Preempted,
    "bad_data": BadData,
    "bad_configuration": BadConfiguration,
    "out_of_memory": OutOfMemory,
    "no_space": NoSpace,
    "diverged": Diverged,
    "failed": JobFailed,
}
"""Maps each reason in a job's ``exit.json`` to a Fault."""


def fault_for(reason: str, message: str) -> Fault:
    """Return the Fault for a job that ended with this reason; JobFailed for an unknown reason."""
    return BY_REASON.get(reason, JobFailed)(message)


FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
AWAY = frozenset({errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN})
"""Error numbers of an absent network disk. EIO is not here, because a damaged disk also causes it."""


def fault_of_disk(error: OSError, root: Path) -> Fault | None:
    """Return the Fault for a system error under ``root``; None if the error is one of the code."""
    number = error.errno
    if isinstance(error, shutil.Error) and (found := re.search(r"\[Errno (\d+)\]", f"{error}")):
        number = int(found[1])  # of a copied tree's first file
    reason = error.strerror or os.strerror(number or 0)
    if number in FULL:
        return NoSpace(f"no space left under {root} ({reason}): free some, or set REPRO_ROOT to another disk")
    if number in AWAY | {errno.EIO}:
        return DiskFault(f"{error.filename or root} cannot be read or written for now: {reason}")
    return None
