"""The exception that ends a job with a reason, and the reasons that ``exit.json`` can hold.

Without torch, because modules that only read data raise it too. ``infra.errors.fault_for`` converts a reason to the
exception that the orchestration raises.
"""

from typing import Literal

ExitReason = Literal[
    "done", "preempted", "bad_data", "bad_configuration", "out_of_memory", "no_space", "diverged", "failed"
]
"""How a job ended.

bad_data: a shard, a vocabulary, a checkpoint or another input is missing or damaged. bad_configuration: the job asks
for something impossible. diverged: a loss or a gradient is not finite. preempted: the job was asked to stop, and has
saved a checkpoint.
"""


class JobError(Exception):
    """Ends a job: ``raise JobError("bad_data", "shards/00000.arrow is damaged")``."""

    def __init__(self, reason: ExitReason, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        return self.message


def bad_data(message: str) -> JobError:
    """Return the error for an input that is missing, damaged or has a wrong format."""
    return JobError("bad_data", message)
