"""Three stages that compute with numbers, and runners for them without display and tracker."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from infra.errors import BadData
from infra.site import Site
from infra.store.local import LocalStore
from infra.store.store import Artifact
from tasks.engine.lookup import Miss
from tasks.engine.planner import Attempt, Planner, Scope, StageResult
from tasks.engine.run_settings import RunSettings
from tasks.engine.runner import Runner
from tasks.engine.stage import Engine, Facts, StageCall, engine, progress, stage

E = TypeVar("E", bound=Engine)
ORDER = ("make", "twice", "total")


@dataclass(frozen=True)
class Number:
    value: int = 3


CALLS: list[str] = []


@stage(version=1)
def make(out: Path, number: Number) -> Facts:
    CALLS.append("make")
    (out / "n").write_text(str(abs(number.value)))
    return {"value": number.value}


@stage(version=1)
def twice(out: Path, number: Artifact) -> Facts:
    CALLS.append("twice")
    progress(1, 2, "half way")
    (out / "n").write_text(str(2 * int((number.path() / "n").read_text())))
    return {}


@stage(version=1, resume=True)
def total(out: Path, numbers: tuple[Artifact, ...]) -> Facts:
    CALLS.append("total")
    (out / "tries").write_text(str(len(list(out.iterdir()))))
    if (out / "fail").exists():
        raise BadData("3 lines, not 4")
    (out / "n").write_text(str(sum(int((a.path() / "n").read_text()) for a in numbers)))
    return {}


class Quiet:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.seen: list[tuple[float, float, str]] = []

    def begin(self, call: StageCall, missing: Miss) -> None: ...

    def progress(self, call: StageCall, done: float, total: float, text: str) -> None:
        self.seen.append((done, total, text))

    def say(self, text: str) -> None:
        self.said.append(text)

    def end(self, row: StageResult) -> None: ...


class Untracked:
    """A tracker that records nothing; MLflow's database takes longer to create than a small run."""

    run_id = ""

    def __init__(self, *_: object) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., str]:
        return lambda *_, **__: ""


def build(number: int) -> Artifact:
    made = make(Number(number))
    return total((made, twice(made)))


def settings(root: Path, scope: Scope = Scope(ORDER), **others: Any) -> RunSettings:  # noqa: B008 - frozen
    others = {"store": LocalStore(root), "site": Site(root=root), "tracker": Untracked(), "display": Quiet()} | others
    return RunSettings(scope=scope, **others)


def scope_of(until: str = "", forced: frozenset[str] = frozenset(), attempt: str = "") -> Scope:
    return Scope(ORDER, until, Attempt(forced, attempt) if attempt else Attempt.new(forced))


def running(root: Path, **scope: Any) -> Runner:
    return Runner(settings(root, scope_of(**scope)))


def built(present: E, number: int = 3) -> E:
    """Build a number with this engine, which is returned."""
    with engine(present):
        build(number)
    return present


def run(root: Path, number: int = 3, **scope: Any) -> list[StageResult]:
    return built(running(root, **scope), number).rows


def plan(root: Path, number: int = 3, **scope: Any) -> list[str]:
    return states(built(Planner(LocalStore(root), Site(root=root), scope_of(**scope)), number).rows)


def content(root: Path, row: StageResult) -> str:
    manifest = LocalStore(root).find(row.stage, row.key)
    assert manifest
    return manifest.content


def states(rows: list[StageResult]) -> list[str]:
    return [row.state for row in rows]
