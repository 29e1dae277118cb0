"""A stage that a worker of another pool makes: its description, and the type of the function that dispatches it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tasks.engine.stage import StageCall


@dataclass(frozen=True)
class RemoteStage:
    """A call that a worker of another pool resolves."""

    call: StageCall
    attempt: str
    """The attempt that a forced stage belongs to; "" for a stage that is not forced."""
    record: str
    """The MLflow run that is the parent of the stage's run."""
    watch: Callable[[], None] = lambda: None
    """Called again and again until the worker has ended; a Fault that it raises gives the stage up."""


Dispatch = Callable[[RemoteStage], None]
"""Returns when the artifact is in the store, or raises the Fault that the worker ended with."""
NO_DISPATCH: Mapping[str, Dispatch] = MappingProxyType({})
"""Keys are values of ``Stage.needs``. This process makes a stage whose need is not a key."""
