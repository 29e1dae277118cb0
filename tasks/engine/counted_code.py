"""Which statements of a user's files can decide what their classes compute: all but those that only bind runs.

Such a statement binds names that nothing else uses to runs, by calls that change nothing. Where that is not certain the
statement counts: a key that changes without need costs time, one that stays without right gives a stale result.
"""

import ast
import builtins
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import ModuleType

from tasks.engine.own_files import PROJECT_PACKAGES, Source, is_foreign

KNOWN_PACKAGES = (*PROJECT_PACKAGES, "dataclasses")
KNOWN_BUILTINS = (dict, enumerate, float, int, len, list, range, set, str, sum, tuple, zip)
EFFECTS = ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal, ast.Delete, ast.Import
UNCLEAR = {"__dict__", "delattr", "eval", "exec", "globals", "locals", "setattr", "vars"}
"""With one of these words a name may mean something else than the syntax shows."""


def counted_syntax(
    sources: Mapping[str, Source], modules: Mapping[str, ModuleType | None], run: type
) -> dict[str, str]:
    """The syntax that counts of each source, as text; of a source with errors the checksum of its bytes.

    ``modules`` are the executed sources. Without one, all statements of a source count.
    """
    bodies = {name: tree.body for name, source in sources.items() if (tree := source.syntax)}
    all_words = {word for body in bodies.values() for node in body for word in _words(node)}
    trees = {name: body for name, body in bodies.items() if modules.get(name)}
    runs = _Runs(trees, {name: module for name, module in modules.items() if module}, run)
    left_out = (
        [] if all_words & UNCLEAR else [node for name in trees for node in trees[name] if runs.only_binds(name, node)]
    )
    counted = [node for body in bodies.values() for node in body if node not in left_out]
    words = {word for node in counted if not _is_foreign_import(node) for word in _words(node)}
    while used := [node for node in left_out if _bound_names(node) & words]:
        left_out = [node for node in left_out if node not in used]
        words |= {word for node in used for word in _words(node)}
    kept = {
        name: [each for node in body if node not in left_out and (each := _without_unused(node, words))]
        for name, body in bodies.items()
    }
    return {
        name: _structure(kept[name]) if name in kept else hashlib.sha256(source.text).hexdigest()
        for name, source in sources.items()
    }


class _Runs:
    """Tells the statements of executed modules that only bind runs."""

    def __init__(self, bodies: Mapping[str, list[ast.stmt]], modules: Mapping[str, ModuleType], run: type) -> None:
        self._modules = modules
        self._run = run
        self._bindings: dict[tuple[str, str], list[ast.stmt]] = {}
        """The statements that bind a module's name."""
        for name, body in bodies.items():
            for node in body:
                for bound in _bound_names(node):
                    self._bindings.setdefault((modules[name].__name__, bound), []).append(node)

    def only_binds(self, name: str, node: ast.stmt) -> bool:
        """Whether a statement of a module only binds names to runs, or to collections of runs."""
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            return False
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [each for target in targets for each in (target.elts if isinstance(target, ast.Tuple) else [target])]
        module = self._modules[name]
        are_runs = all(isinstance(each, ast.Name) and self._is_run(getattr(module, each.id, None)) for each in names)
        return are_runs and self._changes_nothing(node.value, module, ())

    def _is_run(self, value: object) -> bool:
        parts = [*value.values()] if isinstance(value, dict) else value
        if isinstance(parts, list | tuple):
            return bool(parts) and all(map(self._is_run, parts))
        return type(value) is self._run

    def _changes_nothing(self, node: ast.AST, module: ModuleType, callers: tuple[object, ...]) -> bool:
        """Whether to evaluate an expression, or to call a function, has no effect but its value."""
        own = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}
        own |= {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
        for each in ast.walk(node):
            if isinstance(each, EFFECTS):
                return False
            if isinstance(each, ast.Attribute | ast.Subscript) and not isinstance(each.ctx, ast.Load):
                return False
            if isinstance(each, ast.Call):
                is_known = isinstance(each.func, ast.Name) and each.func.id not in own
                if not is_known or not self._is_harmless(each.func.id, module, callers):  # type: ignore[attr-defined]
                    return False
        return True

    def _is_harmless(self, name: str, module: ModuleType, callers: tuple[object, ...]) -> bool:
        """Whether a call of what a module calls ``name`` changes nothing."""
        value = getattr(module, name, getattr(builtins, name, None))
        if value in KNOWN_BUILTINS:
            return True
        home = f"{getattr(value, '__module__', '')}"
        if home.partition(".")[0] in KNOWN_PACKAGES:
            return True
        if isinstance(value, type):  # a filter of the user
            return _only_holds_fields(value)
        bindings = self._bindings.get((home, name), [])
        is_plain = len(bindings) == 1 and isinstance(bindings[0], ast.FunctionDef) and not bindings[0].decorator_list
        place = next((each for each in self._modules.values() if each.__name__ == home), None)
        if not is_plain or value in callers or getattr(place, name, None) is not value or place is None:
            return False
        return self._changes_nothing(bindings[0], place, (*callers, value))


def _only_holds_fields(kind: type) -> bool:
    """Whether to make an instance runs no code of the class, but what ``dataclass`` has written."""
    if not is_dataclass(kind) or hasattr(kind, "__post_init__") or kind.__new__ is not object.__new__:
        return False
    code = getattr(kind.__init__, "__code__", None)
    is_generated = code is not None and code.co_filename == "<string>"
    return is_generated and all(field.default_factory is MISSING for field in fields(kind))


def _bound_names(node: ast.stmt) -> set[str]:
    """The names that a statement may bind in its module, but those of a star import."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    inner = (child for child in ast.walk(node) if child is not node and isinstance(child, ast.stmt))
    stored = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}
    return stored.union(*map(_bound_names, inner))


def _words(node: ast.AST) -> Iterator[str]:
    """Everything by which a statement may name a value of a module."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr
        elif isinstance(each, ast.alias):
            yield each.name.rpartition(".")[2]
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def _is_foreign_import(node: ast.stmt) -> bool:
    """Whether a statement only imports from this project and the standard library, name by name."""
    if isinstance(node, ast.ImportFrom):
        is_named = not node.level and all(alias.name != "*" for alias in node.names)
        return is_named and node.module != "__future__" and is_foreign(f"{node.module}")
    return isinstance(node, ast.Import) and all(is_foreign(alias.name) for alias in node.names)


def _without_unused(node: ast.stmt, words: set[str]) -> ast.stmt | None:
    """A statement without the names that it imports for runs alone; None if nothing is left."""
    if not isinstance(node, ast.Import | ast.ImportFrom) or not _is_foreign_import(node):
        return node
    used = [alias for alias in node.names if (alias.asname or alias.name.partition(".")[0]) in words]
    if not used:
        return None
    return ast.ImportFrom(node.module, used, 0) if isinstance(node, ast.ImportFrom) else ast.Import(used)


def _structure(node: object) -> str:
    """The syntax below a node. ``ast.dump`` would differ between Python 3.11, 3.12 and 3.13 in what it writes of empty
    fields, and each of them adds fields that stay empty in older code."""
    if isinstance(node, list):
        return f"[{', '.join(map(_structure, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
    return f"{type(node).__name__}({', '.join(f'{name}={_structure(value)}' for name, value in fields)})"
