"""Digests the code and libraries that decide what a stage computes, and compares them with those of an artifact.

A key holds a stage's version, which is raised by hand. This module also finds changes without a new version. It digests
the syntax (without comments and docstrings) of the stage's module, of the modules that it imports from ``tasks`` and
``model``, and of the job that it launches. ``infra`` and ``tasks.engine`` only move and store artifacts.
"""

import ast
import hashlib
import json
import platform
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from infra.store.files import stamp_of, write_atomically

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = ("tasks", "model")
ENGINE = "tasks.engine"
JOB = re.compile(r"^model(\.[a-z_0-9]+)+$")
"""A string of this form names the module of a job."""
DIGITS = 12
_PARSING = threading.Lock()
"""Python 3.11 counts the depth of a parse per process: two threads that parse at once end with a SystemError."""


@dataclass(frozen=True)
class ModuleCode:
    """A digest of a module's syntax, and the modules that it may import or launch, also of other projects."""

    digest: str
    imports: tuple[str, ...]


@dataclass(frozen=True)
class CodeChange:
    """What differs between the code that made an artifact and the present code."""

    modules: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    """``polars 1.35 -> 1.36``."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """``code``, ``libraries``, both, or none."""
        return tuple(kind for kind, names in (("code", self.modules), ("libraries", self.libraries)) if names)

    def __str__(self) -> str:
        """``code changed: tasks.stages.clean; libraries changed: polars 1.35 -> 1.36``; "" for none."""
        parts = (("code", self.modules), ("libraries", self.libraries))
        return "; ".join(f"{kind} changed: {', '.join(names)}" for kind, names in parts if names)


UNCHANGED = CodeChange()


@dataclass(frozen=True)
class StageCode:
    """Digests by module, and versions by library (``python`` is one of them); a manifest keeps both in ``made``."""

    modules: Mapping[str, str]
    libraries: Mapping[str, str]

    def change_since(self, made: Mapping[str, Any]) -> CodeChange:
        """What differs from a manifest's record. An older manifest has no record and counts as unchanged."""
        modules = made.get("modules")
        libraries = made.get("libraries")
        if not isinstance(modules, dict) or not isinstance(libraries, dict):
            return UNCHANGED
        # Another version of Python dumps the same syntax as another text.
        before, now = (each.get("python", "").rpartition(".")[0] for each in (libraries, self.libraries))
        edited = _differing(modules, self.modules) if before == now else []
        versions = (
            f"{name} {libraries.get(name, 'none')} -> {self.libraries.get(name, 'none')}"
            for name in _differing(libraries, self.libraries)
        )
        return CodeChange(tuple(edited), tuple(versions))


def module_file(module: str) -> Path | None:
    """The file of a module of this project; None for a top-level package and for any other name."""
    place = PROJECT / module.replace(".", "/")
    package = place / "__init__.py" if "." in module else place
    return next((path for path in (place.with_suffix(".py"), package) if path.is_file()), None)


def syntax_of_text(text: bytes) -> ast.Module:
    """The syntax of a file's text without comments and docstrings."""
    with _PARSING:
        tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            # Strings that stand alone are docstrings.
            node.body = [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]  # type: ignore[attr-defined]
    return tree


class CodeIndex:
    """The code of modules, read once per process. A file keeps it for the next process, by each module's stamp."""

    def __init__(self, cache_file: Path | None) -> None:
        self._file = cache_file
        self._modules: dict[str, ModuleCode | None] = {}
        self._kept: dict[str, Any] = {}
        self._is_saved = True
        if cache_file:
            with suppress(OSError, ValueError):
                kept = json.loads(cache_file.read_text())
                self._kept = kept if isinstance(kept, dict) and kept.get("python") == sys.version else {}

    def module(self, name: str) -> ModuleCode | None:
        """The code of a module of this project; None for any other name."""
        if name not in self._modules:
            path = module_file(name)
            self._modules[name] = self._read(name, path) if path else None
        return self._modules[name]

    def reached(self, name: str, seen: frozenset[str] = frozenset()) -> frozenset[str]:
        """The project's modules that ``name`` uses: its imports and launched jobs, recursively."""
        is_engine = name == ENGINE or name.startswith(f"{ENGINE}.")
        if name in seen or is_engine or name.split(".")[0] not in PACKAGES or not (found := self.module(name)):
            return seen
        seen = seen | {name}
        for other in found.imports:
            seen = self.reached(other, seen)
        return seen

    def save(self) -> None:
        """Write what was parsed into the file, if there is one."""
        if self._file and not self._is_saved:
            self._is_saved = True
            with suppress(OSError):
                write_atomically(self._file, json.dumps(self._kept | {"python": sys.version}))

    def _read(self, name: str, path: Path) -> ModuleCode:
        files = [path, *(page for page in map(path.with_suffix, (".html", ".md")) if page.is_file())]
        stamps = [stamp_of(file) for file in files]
        kept = self._kept.get(name)
        if isinstance(kept, list) and len(kept) == 3 and kept[0] == [f"{path}", stamps]:
            return ModuleCode(kept[1], tuple(kept[2]))
        tree = syntax_of_text(path.read_bytes())
        text = ast.dump(tree) + "".join(file.read_text() for file in files[1:])
        digest = hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
        imports = dict.fromkeys(_imports(name, path, tree))
        self._kept[name] = [[f"{path}", stamps], digest, [*imports]]
        self._is_saved = False
        return ModuleCode(digest, tuple(imports))


_index = cache(CodeIndex)


@cache
def stage_code(module: str, cache_file: Path | None = None) -> StageCode:
    """The code of the stage in ``module``; empty for a module that is not of this project.

    With ``cache_file`` only modules that were edited since are parsed again, so that a call takes a millisecond.
    """
    index = _index(cache_file)
    names = sorted(index.reached(module))
    found = {name: code for name in names if (code := index.module(name))}
    index.save()
    others = {other.split(".")[0] for code in found.values() for other in code.imports} - {"flows", "infra", *PACKAGES}
    libraries = {name: known for name in sorted(others) if (known := _library_version(name))}
    python = {"python": platform.python_version()} if found else {}
    return StageCode({name: code.digest for name, code in found.items()}, python | libraries)


def _imports(module: str, path: Path, tree: ast.Module) -> Iterator[str]:
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *(node.module.split(".") if node.module else [])])
            yield source
            if source.split(".")[0] in PACKAGES:
                yield from (f"{source}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and JOB.match(node.value):
            yield node.value


@cache
def _library_version(name: str) -> str:
    """The installed version of a library; "" for the standard library and what is not installed under that name."""
    if name not in sys.stdlib_module_names:
        with suppress(PackageNotFoundError):
            return version(name).partition("+")[0]
    return ""


def _differing(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [name for name in sorted({*before, *now}) if before.get(name) != now.get(name) and name != "python"]
