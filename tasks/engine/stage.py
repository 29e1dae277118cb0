"""The ``@stage`` decorator: makes a cached stage from a function that fills a folder.

The life of a call, ``weights = average(trained, run.averaging)``:

1. ``Stage.__call__`` binds the arguments and hands a ``StageCall`` to the current engine. The body is not called yet.
2. Its key is a hash of ``["average", version, arguments]``, in which ``trained`` is the key of that artifact.
3. The ``Planner`` looks the key up in the store: ``Hit(artifact)`` or ``Miss(reason)``. It makes nothing.
4. The ``Runner`` uses the plan's hits. For a miss, ``PrefectRunner`` starts a Prefect task that calls ``Runner.make``.
5. ``Runner.make`` locks the key and looks again, since another process may have made the artifact meanwhile.
6. It calls ``average(out, trained, run.averaging)``, with a new folder ``out``. The body fills it and returns facts.
7. The store seals ``out``: checksums, manifest, then a rename to ``average/<key>``. A failed body leaves no artifact.
8. The call returns the artifact of the new ``Hit``. The next stages take it as an argument.

Inside a body, ``progress``, ``site`` and ``current_stage`` give access to the run.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Any, Concatenate, Generic, Literal, ParamSpec

from infra.site import Site
from infra.store.store import Artifact, Store
from infra.tracking.tracker import Tracker
from model.config import Numerics
from tasks.engine.keys import artifact_key, artifacts_in, canonical
from tasks.engine.limits import Check

Facts = dict[str, Any]
Needs = Literal["cpu", "gpu"]
P = ParamSpec("P")


@dataclass(frozen=True)
class StageCall:
    """One stage with its bound arguments, which an engine resolves to an artifact."""

    stage: "Stage[Any]"
    item: str
    arguments: Mapping[str, Any]

    @cached_property
    def key(self) -> str:
        return artifact_key(self.stage.name, self.stage.version, self.arguments)

    @cached_property
    def form(self) -> dict[str, Any]:
        """The arguments in canonical form."""
        return dict(canonical(self.arguments))

    @cached_property
    def inputs(self) -> tuple[Artifact, ...]:
        return tuple(artifacts_in(self.arguments))

    @property
    def input_contents(self) -> dict[str, str]:
        """The content digest of each input, by ``stage/key``."""
        return {f"{artifact.stage}/{artifact.key}": artifact.content for artifact in self.inputs}

    @property
    def label(self) -> str:
        """The name shown to users: ``score val``."""
        return f"{self.stage.name} {self.item}".strip()


@dataclass(frozen=True)
class Origin:
    """A finished artifact that another call of the same stage continues, and its number of updates."""

    artifact: Artifact
    done: int

    @property
    def record(self) -> dict[str, Any]:
        """What a manifest keeps."""
        return {"stage": self.artifact.stage, "key": self.artifact.key, "done": self.done}

    def __str__(self) -> str:
        return f"goes on from update {self.done} of {self.artifact.stage}-{self.artifact.key}"


FindOrigin = Callable[[Store, Site, StageCall, bool], Origin | None]
"""Finds the finished artifact that a call continues, if any; the last argument says whether the call is forced."""
StillValid = Callable[[Artifact, Site], bool]
"""Whether the effects of a stage outside its folder still exist."""


class Engine(ABC):
    """Turns a call into an artifact."""

    @abstractmethod
    def resolve(self, call: StageCall) -> Artifact:
        """The artifact of one call."""

    def resolve_all(self, calls: Sequence[StageCall], at_once: int) -> list[Artifact]:  # noqa: ARG002
        """The artifacts of several calls; an engine that runs them may run ``at_once`` at a time."""
        return [self.resolve(call) for call in calls]


@dataclass(eq=False)
class Stage(Generic[P]):
    """A cached stage; ``body`` is the decorated function, and ``stage`` explains the other fields."""

    body: Callable[Concatenate[Path, P], Facts]
    version: int
    resume: bool
    still_valid: StillValid | None
    needs: Needs
    origin: FindOrigin
    item: str = ""
    """Which of several items the stage is for, as in ``score test``; "" if there is only one."""

    def __post_init__(self) -> None:
        self.name = self.body.__name__
        self.__doc__ = self.body.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Artifact:
        return _engine.get().resolve(self._bound(self.item, *args, **kwargs))

    def for_item(self, item: str) -> "Stage[P]":
        """The same stage for one of several items."""
        for_one = copy(self)
        for_one.item = item
        return for_one

    def map(self, items: Mapping[str, Any], at_once: int) -> dict[str, Artifact]:
        """Call the stage for several items, at most ``at_once`` at a time; each value is the body's only argument."""
        calls = [self._bound(item, argument) for item, argument in items.items()]
        return dict(zip(items, _engine.get().resolve_all(calls, at_once), strict=True))

    def _bound(self, item: str, *args: Any, **kwargs: Any) -> StageCall:
        bound = signature(self.body).bind(Path(), *args, **kwargs)
        defaults = {name: parameter.default for name, parameter in bound.signature.parameters.items()}
        # The key omits arguments that equal their default, so that a new argument leaves old artifacts valid.
        arguments = {n: value for n, value in bound.arguments.items() if n != "out" and value != defaults[n]}
        return StageCall(self, item, arguments)


def stage(
    *,
    version: int,
    resume: bool = False,
    still_valid: StillValid | None = None,
    needs: Needs = "cpu",
    origin: FindOrigin = lambda *_: None,
) -> Callable[[Callable[Concatenate[Path, P], Facts]], Stage[P]]:
    """Make ``body(out, ...) -> facts`` a stage.

    Raise ``version`` when the results of the code change. With ``resume`` the next attempt gets the folder of an
    interrupted one. A stage with effects outside its folder, such as a registered version, has ``still_valid``.
    ``needs`` is ``gpu`` if its job takes a GPU of the site; it is also the task's tag in Prefect.
    """

    def wrap(body: Callable[Concatenate[Path, P], Facts]) -> Stage[P]:
        return Stage(body, version, resume, still_valid, needs, origin)

    return wrap


@dataclass(frozen=True)
class JobRequest:
    """A program that fills ``out``: ``python -m module``, in all ranks of the site if ``distributed``."""

    module: str
    config: Mapping[str, Any]
    inputs: Mapping[str, Path]
    out: Path
    distributed: bool = False
    numerics: Numerics = "fast"


@dataclass
class StageContext:
    """The parts of a run that the body of a stage can use."""

    site: Site
    call: StageCall
    run_job: Callable[[JobRequest], None]
    """Runs a job to its end; raises the Fault that it ends with."""
    progress: Callable[[float, float, str], None]
    tracker: Tracker
    run_id: str
    origin: Origin | None = None
    """The finished artifact that the body continues."""
    checks: tuple[Check, ...] = ()
    failures: list[str] = field(default_factory=list)
    """Why each try so far failed; the record of the run has them."""
    say: Callable[[str], None] = lambda _: None


_engine: ContextVar[Engine] = ContextVar("engine")
_stage_context: ContextVar[StageContext] = ContextVar("stage_context")


@contextmanager
def engine(current: Engine) -> Iterator[None]:
    """Resolve the stage calls of this block with ``current``."""
    token = _engine.set(current)
    try:
        yield
    finally:
        _engine.reset(token)


@contextmanager
def stage_context(context: StageContext) -> Iterator[None]:
    """Give the stage body that runs in this block its context."""
    token = _stage_context.set(context)
    try:
        yield
    finally:
        _stage_context.reset(token)


def progress(done: float, total: float, text: str = "") -> None:
    """Report the progress of the current stage; does nothing outside a run."""
    if context := _stage_context.get(None):
        context.progress(done, total, text)


def site() -> Site:
    """The site of the current stage; outside a run, the site that the environment describes."""
    context = _stage_context.get(None)
    return context.site if context else Site.named()


def checks() -> tuple[Check, ...]:
    """The checks of the earlier stages against the limits of the run, which no stage takes as an argument."""
    context = _stage_context.get(None)
    return context.checks if context else ()


def current_stage() -> StageContext:
    """The context of the current stage: ``current_stage().run_job(JobRequest("model.train", config, inputs, out))``."""
    return _stage_context.get()


def job_facts(out: Path) -> Facts:
    """The facts that the finished job in ``out`` reported."""
    return dict(json.loads((out / "exit.json").read_text()).get("facts", {}))
