"""Errors with a one-sentence message for people; the class says whether a retry can help."""

import errno
from pathlib import Path

INTERRUPTED = "interrupted"
"""What is recorded of work that Ctrl-C or SIGTERM ended."""


class Fault(Exception):
    """An error with one clear sentence. Not retried unless its class says so."""

    retry = False


def describe(error: BaseException) -> str:
    """The sentence of a fault, INTERRUPTED for the end by a signal; any other error gets its class name in front."""
    if not isinstance(error, Exception):
        return INTERRUPTED
    return f"{error}" if isinstance(error, Fault) else f"{type(error).__name__}: {error}"


class BadConfiguration(Fault):
    """The run, the site or the command line asks for something impossible."""


class BadData(Fault):
    """The text, a shard, a checkpoint or another input is damaged or of the wrong form."""


class OutOfMemory(Fault):
    """A batch did not fit."""


class NoSpace(Fault):
    """The disk is full."""


class Diverged(Fault):
    """Loss or gradient stopped being finite."""


class NetworkFault(Fault):
    """A server did not answer, or broke off."""

    retry = True


class DiskFault(Fault):
    """A disk, mostly one of the network, did not answer, or broke off."""

    retry = True


class Preempted(Fault):
    """The machine was taken away; a checkpoint was left behind."""

    retry = True


class JobFailed(Fault):
    """A job ended without saying why (killed, crashed); its node may be gone."""

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
"""The Fault of each reason that a job's ``exit.json`` gives."""


def fault_for(reason: str, message: str) -> Fault:
    """The Fault for a job that ended with this reason; JobFailed for an unknown one."""
    return BY_REASON.get(reason, JobFailed)(message)


FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
AWAY = frozenset({errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN})
"""What the system says while a network disk is away. It says EIO too, but also for a damaged disk."""


def fault_of_disk(error: OSError, root: Path) -> Fault | None:
    """The Fault behind an error of the operating system under ``root``; None for an error of the code."""
    if error.errno in FULL:
        return NoSpace(f"no space left under {root}: free some, or set REPRO_ROOT to another disk")
    if error.errno in AWAY | {errno.EIO}:
        return DiskFault(f"{error.filename or root} cannot be read or written for now: {error.strerror}")
    return None
