"""Several registrations and promotions of one model at once, in a chosen order of their requests to MLflow."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import datetime, tzinfo
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from greenlet import getcurrent, greenlet

from infra.tracking.model_logging import TextModel
from infra.tracking.model_version import Version
from infra.tracking.registry import set_alias, versions
from tasks.registration.register_version import register_version

URI = "http://mlflow.simulated:5000"
READS_AND_MOVES = ("read", "champion")
"""The versions are read for a decision; the alias is set."""
MODEL = TextModel(Path("code.py"), Path("package"), {}, {}, (), ())


class Turns:
    """A process waits for its turn before each request of ``points``; without points, before every request."""

    def __init__(self, points: Iterable[str] = ()) -> None:
        self.points = frozenset(points)
        self.processes: list[greenlet] = []

    def step(self, name: str) -> None:
        if getcurrent() in self.processes and (not self.points or name in self.points):
            getcurrent().parent.switch()

    def run(self, bodies: list[Callable[[], Any]], choices: Iterable[int]) -> list[int]:
        """Run to the ends; a choice is the place, among those that live, of who goes on. Returns how many lived."""
        self.processes = [greenlet(body) for body in bodies]
        lived = []
        choose = chain(choices, repeat(0))
        while alive := [process for process in self.processes if not process.dead]:
            lived.append(len(alive))
            alive[next(choose) % len(alive)].switch()
        self.processes = []
        return lived


class Client:
    """What registrations ask MLflow's client for, answered from memory. Each request is one step."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.found: list[SimpleNamespace] = []
        """The versions, the oldest first."""
        self.aliases: dict[str, str] = {}

    def search_registered_models(self, **which: Any) -> list[Any]:
        self.turns.step("search_registered_models")
        return [SimpleNamespace(name="m", aliases=dict(self.aliases))]

    def search_model_versions(self, **which: Any) -> list[Any]:
        self.turns.step("search_model_versions")
        return [SimpleNamespace(**{**vars(each), "tags": dict(each.tags)}) for each in self.found]

    def create_model_version(self, name: str, source: str, run_id: str, tags: Mapping[str, str], model_id: str) -> Any:
        self.turns.step("create_model_version")
        number = f"{len(self.found) + 1}"
        self.found.append(
            SimpleNamespace(
                name=name, version=number, run_id=run_id, source=source, tags=dict(tags), creation_timestamp=0
            )
        )
        return self.found[-1]

    def get_model_version(self, name: str, number: str) -> Any:
        self.turns.step("get_model_version")
        return self.found[int(number) - 1]

    def set_model_version_tag(self, name: str, number: str, tag: str, value: str) -> None:
        self.turns.step("set_model_version_tag")
        self.found[int(number) - 1].tags[tag] = value

    def set_registered_model_alias(self, name: str, alias: str, number: str) -> None:
        self.turns.step(alias)
        self.turns.step("set_registered_model_alias")
        self.aliases[alias] = number

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Another request, which changes nothing that a registration reads."""
        return lambda *_, **__: self.turns.step(name)


class Model:
    """A registered model whose versions are registered and promoted in turns."""

    def __init__(self, points: Iterable[str] = READS_AND_MOVES) -> None:
        self.turns = Turns(points)
        self.client = Client(self.turns)
        self.made: dict[str, dict[str, Any]] = {}
        self.reads: list[str] = []
        """The registrations that have read what was there before them."""

    def register(self, run_id: str, bleu: float, digest: str = "d") -> None:
        tags = {
            "dev_set": "val",
            "dev_bleu": f"{bleu}",
            "dev_digest": digest,
            "dev_signature": "13a",
            "val.bleu": f"{bleu}",
        }
        self.made[run_id] = register_version(URI, Path("/"), run_id, "m", MODEL, tags, False, 1.0)

    def versions(self) -> list[Version]:
        with patch.object(self.turns, "step", lambda name: None):
            return versions(URI, "m")

    def promote(self, number: int) -> None:
        """What ``repro promote`` does, in one turn: an upload takes far longer."""
        version = next(version for version in self.versions() if version.version == number)
        with patch.object(self.turns, "step", lambda name: None):
            set_alias(URI, version, "champion", "read by two translators")

    def holder(self, alias: str) -> Version:
        return next(version for version in self.versions() if alias in version.aliases)


@contextmanager
def model(points: Iterable[str] = READS_AND_MOVES) -> Iterator[Model]:
    """A model without versions on a server that several machines share: none of them sees the lock of another one."""
    made = Model(points)
    milliseconds = iter(range(10**9))

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Clock":
            return cls.fromtimestamp(next(milliseconds) / 1e3, tz)

    def pages(search: Callable[..., Any], *arguments: Any, **named: Any) -> list[Any]:
        return list(search(*arguments, **named))

    def read(uri: str, name: str) -> list[Version]:
        made.turns.step("read")
        return versions(uri, name)

    def read_first(uri: str, name: str) -> list[Version]:
        found = read(uri, name)
        made.reads.append(name)
        return found

    with (
        patch("infra.tracking.registry.datetime", Clock),
        patch("infra.tracking.registry.mlflow_client", lambda uri: made.client),
        patch("infra.tracking.registry.all_pages", pages),
        patch("infra.tracking.registry.user", lambda: "somebody"),
        patch("tasks.registration.aliases.user", lambda: "somebody"),
        patch("tasks.registration.register_version.log_model", lambda *_: "the model"),
        patch("tasks.registration.register_version.file_lock", lambda *_: nullcontext()),
        patch("tasks.registration.register_version.versions", read_first),
        patch("tasks.registration.aliases.versions", read),
    ):
        yield made


def every_order(run: Callable[[list[int]], list[int]]) -> int:
    """Call ``run`` with the choices of each order there is; returns how many."""
    choices: list[int] = []
    for count in range(1, 10**6):
        lived = run(choices)
        choices += [0] * (len(lived) - len(choices))
        while choices and choices[-1] + 1 == lived[len(choices) - 1]:
            choices.pop()
        if not choices:
            return count
        choices[-1] += 1
    raise AssertionError("too many orders")
