"""Ends before the end, each with a sentence that a person can act on; torch-free, as readers of data raise them too."""

from typing import Literal

ExitReason = Literal[
    "done", "preempted", "bad_data", "bad_configuration", "out_of_memory", "no_space", "diverged", "failed"
]


class JobError(Exception):
    """A job's end with its sentence. Subclasses say which of the reasons it is."""

    reason: ExitReason = "failed"


class BadData(JobError):
    """A shard, a vocabulary, a checkpoint or another input is not what it must be."""

    reason = "bad_data"


class BadConfiguration(JobError):
    """The job asks for something that cannot be."""

    reason = "bad_configuration"


class Diverged(JobError):
    """Loss or gradient stopped being finite."""

    reason = "diverged"


class OutOfMemory(JobError):
    """A batch did not fit into memory."""

    reason = "out_of_memory"


class Preempted(JobError):
    """Asked to end; a checkpoint was left behind."""

    reason = "preempted"
