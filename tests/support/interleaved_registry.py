"""Several registrations and promotions of one model at once, in a chosen order of their requests to MLflow."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from unittest.mock import patch

from greenlet import getcurrent, greenlet
from simulated.disk import Disk
from simulated.registry import URI, Registry, simulated_registry

from infra.tracking.model_logging import TextModel
from infra.tracking.model_version import Version
from infra.tracking.registry import set_alias, versions
from tasks.registration.register_version import register_version

READS_AND_MOVES = ("read", "champion")
"""The versions are read for a decision; the alias is set."""
MODEL = TextModel(Path("code.py"), Path("package"), {}, {}, (), ())


class Turns:
    """Stands for ``simulated.machine.Machine``: a process waits for its turn before each request of ``points``."""

    def __init__(self, points: Iterable[str] = ()) -> None:
        self.points, self.disk, self.current = frozenset(points), Disk("/"), None
        self.processes: list[greenlet] = []

    def step(self, name: str) -> None:
        """Wait for the next turn if that is a point of the order; without points every request is one."""
        if getcurrent() in self.processes and (not self.points or name in self.points):
            getcurrent().parent.switch()

    def time(self) -> float:
        self.disk.now_ns += 1_000
        return self.disk.now_ns / 1e9

    def run(self, bodies: list[Callable[[], Any]], choices: Iterable[int]) -> list[int]:
        """Run to the ends; a choice is the place, among those that live, of who goes on. Returns how many lived."""
        self.processes = [greenlet(body) for body in bodies]
        lived, choose = [], chain(choices, repeat(0))
        while alive := [process for process in self.processes if not process.dead]:
            lived.append(len(alive))
            alive[next(choose) % len(alive)].switch()
        self.processes = []
        return lived


class _Registry(Registry):
    def set_registered_model_alias(self, name: str, alias: str, number: str) -> None:
        self.machine.step(alias)
        super().set_registered_model_alias(name, alias, number)


class Model:
    """A registered model whose versions are registered and promoted in turns."""

    def __init__(self, points: Iterable[str] = READS_AND_MOVES) -> None:
        self.turns = Turns(points)
        self.registry = _Registry(self.turns, Path("/"))  # type: ignore[arg-type]
        self.made: dict[str, dict[str, Any]] = {}
        self.reads: list[str] = []
        """The registrations that have read what was there before them."""

    def register(self, run_id: str, bleu: float, digest: str = "d") -> None:
        tags = {"dev_set": "val", "dev_bleu": f"{bleu}", "dev_digest": digest, "dev_signature": "13a"}
        self.made[run_id] = register_version(URI, Path("/"), run_id, "m", MODEL, tags, False, 1.0)

    def promote(self, number: int) -> None:
        """What ``repro promote`` does, in one turn: an upload takes far longer."""
        version = next(version for version in self.registry.versions() if version.version == number)
        with patch.object(self.turns, "step", lambda name: None):
            set_alias(URI, version, "champion", "read by two translators")

    def holder(self, alias: str) -> Version:
        return next(version for version in self.registry.versions() if alias in version.aliases)


@contextmanager
def model(points: Iterable[str] = READS_AND_MOVES) -> Iterator[Model]:
    """A model without versions on a server that several machines share: none of them sees the lock of another one."""
    made = Model(points)

    def read(uri: str, name: str) -> list[Version]:
        made.turns.step("read")
        return versions(uri, name)

    def read_first(uri: str, name: str) -> list[Version]:
        found = read(uri, name)
        made.reads.append(name)
        return found

    with (
        simulated_registry(made.registry),
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
