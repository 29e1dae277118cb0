"""Failures that a person can read in one sentence. The class says whether trying again can help."""


class Fault(Exception):
    """A failure with one clear sentence. Not retried unless its class says so."""

    retry = False


class BadConfiguration(Fault):
    """The run, the site or the command line asks for something that cannot be."""


class BadData(Fault):
    """The text, a shard, a checkpoint or another input is not what it must be."""


class OutOfMemory(Fault):
    """A batch did not fit."""


class NoSpace(Fault):
    """The disk is full."""


class Diverged(Fault):
    """Loss or gradient stopped being finite."""


class NetworkFault(Fault):
    """A server did not answer, or broke off."""

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
