"""A stage for a worker elsewhere: what that worker is given, and who takes it there."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tasks.engine.stage import StageCall


@dataclass(frozen=True)
class RemoteStage:
    """A call for a worker of another pool."""

    call: StageCall
    attempt: str
    """The attempt that a forced stage belongs to; "" for a stage that is not forced."""
    record: str
    """The MLflow run that is the parent of the stage's run."""


Dispatch = Callable[[RemoteStage], None]
"""Returns when the artifact is in the store, or raises the Fault that the worker ended with."""
NO_DISPATCH: Mapping[str, Dispatch] = MappingProxyType({})
"""By what a stage needs. A stage whose need is not listed is made in this process."""
