"""What a run passes to its engine: store, site, scope, display, tracker, plan and limits."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock

from infra.site import Site
from infra.store.store import Artifact, Store
from infra.tracking.mlflow_runs import RunFile
from infra.tracking.tracker import Tracker
from tasks.engine.limits import Limits
from tasks.engine.lookup import Hit, Miss
from tasks.engine.planner import Scope
from tasks.engine.progress import Display
from tasks.engine.stage import StageCall


@dataclass(frozen=True)
class RunSettings:
    store: Store
    site: Site
    scope: Scope
    display: Display
    tracker: Tracker
    plan: Mapping[str, Hit | Miss] = field(default_factory=dict)
    """The lookups of the plan by key; its hits are not looked up again."""
    limits: Limits = field(default_factory=Limits)
    files: Callable[[StageCall, Artifact], Iterable[RunFile]] = lambda *_: ()
    on_completed: Callable[[], None] = lambda: None
    """Called after each completed stage, so that the run's record names it even if the run is killed later."""
    hint: str = ""
    """Tells another process that waits for an artifact of this process how to see its progress."""
    tracker_lock: Lock = field(default_factory=Lock)
    """Held while the engine calls the tracker, which is not thread-safe."""
