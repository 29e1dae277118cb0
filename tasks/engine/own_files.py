"""The files that a user's file consists of: itself and every file beside it that it can import."""

import ast
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tasks.engine.stage_code import syntax_of_text

PROJECT_PACKAGES = ("flows", "tasks", "model", "infra")
IMPORTING_WORDS = {"importlib", "pkgutil", "runpy", "__import__", "eval", "exec"}
"""A file with one of these words may import modules that none of its import statements names."""
INSTALLED = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}


@dataclass(frozen=True)
class Source:
    """A module's file and its text."""

    path: Path
    text: bytes

    @property
    def syntax(self) -> ast.Module | None:
        """Without comments and docstrings; None if it has errors, so that no import of it succeeds."""
        with suppress(SyntaxError, ValueError):
            return syntax_of_text(self.text)
        return None


def read_sources(file: Path, module: str = "") -> dict[str, Source]:
    """A file and what it can import beside it, by module name, as they are now; the file's own name is "".

    A package counts as a whole, and every file of the folder counts for one that imports by computed names. ``module``:
    the name of the file's module, if it is part of a package.
    """
    package, *parts = module.split(".")
    folder = file.parents[len(parts)]
    sources = {"": Source(file, file.read_bytes())} | (_neighbour(folder, package) if parts else {})
    waiting = [] if folder in INSTALLED else [*sources]
    while waiting:
        for name in {*_imported(sources[waiting.pop()], folder)} - {each.partition(".")[0] for each in sources}:
            found = _neighbour(folder, name)
            sources |= found
            waiting += found
    return sources


def is_foreign(name: str) -> bool:
    """Whether a module belongs to this project or to the standard library."""
    top = name.partition(".")[0]
    return top in PROJECT_PACKAGES or top in sys.stdlib_module_names


def _imported(source: Source, folder: Path) -> Iterator[str]:
    """The first part of each name that a module may import."""
    tree = source.syntax
    words: set[str] = set()
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            words.update(name.partition(".")[0] for name in names)
        elif isinstance(node, ast.Name):
            words |= IMPORTING_WORDS & {node.id}
    if words & IMPORTING_WORDS:
        words.update(path.stem for path in folder.glob("*.py"))
        words.update(path.parent.name for path in folder.glob("*/*.py"))
    yield from words


def _neighbour(folder: Path, name: str) -> dict[str, Source]:
    """The modules that ``import name`` loads from ``folder``; none if it finds another module elsewhere."""
    if is_foreign(name) or not name.isidentifier() or _is_elsewhere(name, folder):
        return {}
    package = folder / name
    file = folder / f"{name}.py"
    files = [file] if file.is_file() and not (package / "__init__.py").is_file() else sorted(package.rglob("*.py"))
    return {_module(path, folder): Source(path, path.read_bytes()) for path in files if path.is_file()}


def _module(path: Path, folder: Path) -> str:
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_elsewhere(name: str, folder: Path) -> bool:
    """Whether Python finds another module of this name: files beside a user's file shadow nothing."""
    present = sys.modules.get(name)
    with suppress(ValueError, ImportError):
        spec = present.__spec__ if present else importlib.util.find_spec(name)
        if spec and spec.origin:
            return not Path(spec.origin).is_relative_to(folder)
    return False
