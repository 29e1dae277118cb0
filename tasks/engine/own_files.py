"""Digests the code of a user's file: which files it consists of, and which of their statements count.

The files are the user's file and the files beside it that it can import. A package counts as a whole. If a file imports
by computed names, every file of the folder counts. All statements count, as syntax without comments and docstrings,
except

- names imported from this project or the standard library that no counted statement uses, and
- statements of the user's file itself that only bind runs, to names that no counted statement uses.

    from model.config import Averaging, Model   # Model counts, since Fits uses it; Averaging does not
    class Fits:                                 # counts
        size = Model().d_model
    MINE = replace(DEMO, averaging=Averaging(1))    # does not count: it binds a run
    MORE = (Fits.extend(), DEMO)[1]                 # counts: a call of a method may change anything

In doubt a statement counts: a key that changes without need costs time, but a key that wrongly stays the same gives a
stale result.
"""

import ast
import builtins
import hashlib
import importlib.util
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from pathlib import Path

from tasks.engine.stage_code import DIGITS, syntax_of_text

PROJECT_PACKAGES = ("flows", "tasks", "model", "infra")
KNOWN_PACKAGES = (*PROJECT_PACKAGES, "dataclasses")
KNOWN_BUILTINS = (dict, enumerate, float, int, len, list, range, set, str, sum, tuple, zip)
EFFECTS = ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal, ast.Delete, ast.Import
IMPORTING_WORDS = {"importlib", "pkgutil", "runpy", "__import__", "eval", "exec"}
"""A file with one of these words may import modules that none of its import statements names."""
UNCLEAR_WORDS = {"__dict__", "delattr", "eval", "exec", "globals", "locals", "setattr", "vars"}
"""With one of these words a name may not mean what the syntax shows, so statements that bind runs count too."""
INSTALLED = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}


@dataclass(frozen=True)
class Source:
    """A module's file and its text."""

    path: Path
    text: bytes

    @cached_property
    def syntax(self) -> ast.Module | None:
        """The syntax without comments and docstrings; None if it has errors, so that it cannot be imported."""
        with suppress(SyntaxError, ValueError):
            return syntax_of_text(self.text)
        return None


def read_sources(file: Path, module: str = "") -> dict[str, Source]:
    """Read a file and the files beside it that it can import, by module name; the file's own name is "".

    ``module`` is the name of the file's module, if it is part of a package.
    """
    package, *parts = module.split(".")
    folder = file.parents[len(parts)]
    sources = {"": Source(file, file.read_bytes())} | (_neighbour(folder, package) if parts else {})
    waiting = [] if folder in INSTALLED else [*sources]
    while waiting:
        for name in _imported(sources[waiting.pop()], folder) - {each.partition(".")[0] for each in sources}:
            modules = _neighbour(folder, name)
            sources |= modules
            waiting += modules
    return sources


def _imported(source: Source, folder: Path) -> set[str]:
    """The first part of every name that a module may import."""
    words: set[str] = set()
    for node in ast.walk(source.syntax) if source.syntax else ():
        if isinstance(node, ast.ImportFrom) and node.module:
            words.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Import | ast.ImportFrom):
            words.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name):
            words |= IMPORTING_WORDS & {node.id}
    if words & IMPORTING_WORDS:
        words.update(path.stem for path in folder.glob("*.py"))
        words.update(path.parent.name for path in folder.glob("*/*.py"))
    return words


def _neighbour(folder: Path, name: str) -> dict[str, Source]:
    """The modules that ``import name`` loads from ``folder``; none if Python finds this name elsewhere."""
    if _is_foreign(name) or not name.isidentifier():
        return {}
    package = folder / name
    file = folder / f"{name}.py"
    own = {path.resolve() for path in (file, package / "__init__.py")}
    present = sys.modules.get(name)
    with suppress(ValueError, ImportError):
        spec = present.__spec__ if present else importlib.util.find_spec(name)
        if spec and spec.origin and Path(spec.origin).resolve() not in own:
            return {}
    is_file = file.is_file() and not (package / "__init__.py").is_file()
    found = {}
    for path in [file] if is_file else sorted(package.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = Source(path, path.read_bytes())
    return found


def _is_foreign(name: str) -> bool:
    """Whether a module belongs to this project or to the standard library."""
    top = name.partition(".")[0]
    return top in PROJECT_PACKAGES or top in sys.stdlib_module_names


def digest(sources: Mapping[str, Source], values: Mapping[str, object] | None = None, run: type | None = None) -> str:
    """Digest the statements that count; if a source has syntax errors, all its bytes count.

    ``values`` are the names of the executed user's file, ``run`` the type of runs. Without them all statements count.
    """
    trees = {name: source.syntax for name, source in sources.items() if source.syntax}
    statements = [node for tree in trees.values() for node in tree.body]
    left_out: list[ast.stmt] = []
    if values and run and not UNCLEAR_WORDS & {word for node in statements for word in _words(node)}:
        left_out = _run_statements(trees[""], values, run)
    while True:
        counted = [node for node in statements if node not in left_out]
        words = {word for node in counted if not _is_foreign_import(node) for word in _words(node)}
        unused = [node for node in left_out if words.isdisjoint(_bound_names(node))]
        if unused == left_out:
            break
        left_out = unused
    forms = {name: hashlib.sha256(source.text).hexdigest() for name, source in sources.items()}
    for name, tree in trees.items():
        used = (_without_unused(node, words) for node in tree.body if node not in left_out)
        forms[name] = _structure([node for node in used if node])
    return hashlib.sha256(f"{sorted(forms.items())}".encode()).hexdigest()[:DIGITS]


def _run_statements(tree: ast.Module, values: Mapping[str, object], run: type) -> list[ast.stmt]:
    """The statements of a user's file that bind runs and change nothing else."""
    times_bound = Counter(_bound_names(tree))
    harmless = {
        name
        for name, value in {**vars(builtins), **values}.items()
        if times_bound[name] == (name in values) and _is_harmless(value)
    }
    """Names that may be called, because they mean the same in every scope of the file."""
    found = []
    for node in tree.body:
        if not _only_calls(node, harmless):
            continue
        if isinstance(node, ast.FunctionDef) and not node.decorator_list and times_bound[node.name] == 1:
            harmless.add(node.name)
        elif _binds_runs(node, values, run):
            found.append(node)
    return found


def _only_calls(node: ast.stmt, harmless: Set[str]) -> bool:
    """Whether a statement, or a call of the function that it defines, changes only its own names."""
    for each in ast.walk(node):
        if isinstance(each, EFFECTS):
            return False
        if isinstance(each, ast.Attribute | ast.Subscript) and not isinstance(each.ctx, ast.Load):
            return False
        if isinstance(each, ast.Call) and not (isinstance(each.func, ast.Name) and each.func.id in harmless):
            return False
    return True


def _binds_runs(node: ast.stmt, values: Mapping[str, object], run: type) -> bool:
    """Whether a statement binds names whose values are runs, or collections of runs."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = [name for target in targets for name in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return all(isinstance(name, ast.Name) and _is_run(values.get(name.id), run) for name in names)


def _is_run(value: object, run: type) -> bool:
    parts = [*value.values()] if isinstance(value, dict) else value
    if isinstance(parts, list | tuple):
        return bool(parts) and all(_is_run(part, run) for part in parts)
    return type(value) is run


def _is_harmless(value: object) -> bool:
    """Whether a call of the value changes nothing: true for some builtins, project code and plain dataclasses."""
    if any(value is known for known in KNOWN_BUILTINS):
        return True
    if f"{getattr(value, '__module__', '')}".partition(".")[0] in KNOWN_PACKAGES:
        return True
    if not isinstance(value, type) or not is_dataclass(value) or hasattr(value, "__post_init__"):
        return False
    code = getattr(value.__init__, "__code__", None)
    return code is not None and code.co_filename == "<string>"  # ``dataclass`` generated it


def _bound_names(tree: ast.AST) -> Iterator[str]:
    """The names that syntax binds, in every scope, except names of a star import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, ast.arg):
            yield node.arg


def _words(node: ast.AST) -> Iterator[str]:
    """All words in a statement that may name a value of a module."""
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
    """Whether a statement only imports from this project or the standard library, name by name."""
    if isinstance(node, ast.ImportFrom):
        is_named = not node.level and all(alias.name != "*" for alias in node.names)
        return is_named and node.module != "__future__" and _is_foreign(f"{node.module}")
    return isinstance(node, ast.Import) and all(_is_foreign(alias.name) for alias in node.names)


def _without_unused(node: ast.stmt, words: set[str]) -> ast.stmt | None:
    """A statement without its unused imports of foreign names; None if nothing is left."""
    if not isinstance(node, ast.Import | ast.ImportFrom) or not _is_foreign_import(node):
        return node
    used = [alias for alias in node.names if (alias.asname or alias.name.partition(".")[0]) in words]
    if not used:
        return None
    return ast.ImportFrom(node.module, used, 0) if isinstance(node, ast.ImportFrom) else ast.Import(used)


def _structure(node: object) -> str:
    """The syntax below a node as text: equal on Python 3.11, 3.12 and 3.13, unlike the text of ``ast.dump``."""
    if isinstance(node, list):
        return f"[{', '.join(map(_structure, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
    return f"{type(node).__name__}({', '.join(f'{name}={_structure(value)}' for name, value in fields)})"
