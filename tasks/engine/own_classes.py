"""The code of classes that users write, such as a filter in a file of runs; it is part of a stage's key.

This project's own classes have the version of their stage instead.
"""

import ast
import hashlib
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tasks.engine.stage_code import syntax

PROJECT_PACKAGES = ("flows", "tasks", "model", "infra")
DIGITS = 12


@cache
def own_code(kind: type) -> str:
    """A digest of a user's class with what it uses of its file and of files beside it; "" for one of this project.

    Comments, docstrings and unrelated definitions do not count. Raises TypeError if the class is in no file.
    """
    if kind.__module__.split(".")[0] in PROJECT_PACKAGES:
        return ""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if not file:
        raise TypeError(f"{kind.__qualname__} is defined in no file: write the class into one, so that its code counts")
    found: dict[tuple[str, str], str] = {}
    _collect(Path(file), kind.__qualname__.split(".")[0], found)
    return hashlib.sha256(f"{sorted(found.items())}".encode()).hexdigest()[:DIGITS]


def _collect(file: Path, name: str, found: dict[tuple[str, str], str]) -> None:
    """Add the statements that bind ``name`` in ``file``, and those of all names that they use; "" is the whole file."""
    if (file.name, name) in found:
        return
    found[file.name, name] = ""
    tree = syntax(file)
    statements = [node for node in tree.body if not name or name in _bound_names(node)]
    for node in statements or tree.body:  # a class inside a function: the whole file counts
        if isinstance(node, ast.Import | ast.ImportFrom):
            for neighbour, imported in _neighbours(file, node, name):
                _collect(neighbour, imported, found)
            continue
        found[file.name, name] += _structure(node)
        for each in ast.walk(node):
            if (
                isinstance(each, ast.Name)
                and isinstance(each.ctx, ast.Load)
                and any(each.id in _bound_names(other) for other in tree.body)
            ):
                _collect(file, each.id, found)


def _structure(node: object) -> str:
    """The syntax below a node. ``ast.dump`` would differ between Python 3.11, 3.12 and 3.13 in what it writes of empty
    fields, and each of them adds fields that stay empty in older code."""
    if isinstance(node, list):
        return f"[{', '.join(map(_structure, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
    return f"{type(node).__name__}({', '.join(f'{name}={_structure(value)}' for name, value in fields)})"


def _bound_names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.split(".")[0] for alias in node.names}
    inner = (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt))
    stored = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    return stored.union(*(_bound_names(child) for child in inner))


def _neighbours(file: Path, node: ast.Import | ast.ImportFrom, name: str) -> Iterator[tuple[Path, str]]:
    """The modules beside ``file`` that bind ``name`` by this import, and what is imported from each."""
    for alias in node.names:
        if name and name != (alias.asname or alias.name.split(".")[0]):
            continue
        module = alias.name if isinstance(node, ast.Import) else node.module or alias.name
        path = file.parent / f"{module.replace('.', '/')}.py"
        if path.is_file():
            yield path, alias.name if isinstance(node, ast.ImportFrom) and node.module else ""
