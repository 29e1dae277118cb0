"""Ends before the end, each with a sentence that a person can act on; torch-free, as readers of data raise them too."""

from typing import Literal

Reason = Literal[
    "done", "preempted", "bad_data", "bad_configuration", "out_of_memory", "no_space", "diverged", "failed"
]


class Ending(Exception):
    """A job's end with its sentence. Subclasses say which of the reasons it is."""

    reason: Reason = "failed"


class BadData(Ending):
    """A shard, a vocabulary, a checkpoint or another input is not what it must be."""

    reason = "bad_data"


class BadConfiguration(Ending):
    """The job asks for something that cannot be."""

    reason = "bad_configuration"


class Diverged(Ending):
    """Loss or gradient stopped being finite."""

    reason = "diverged"


class OutOfMemory(Ending):
    """A batch did not fit into memory."""

    reason = "out_of_memory"


class Preempted(Ending):
    """Asked to end; a checkpoint was left behind."""

    reason = "preempted"
