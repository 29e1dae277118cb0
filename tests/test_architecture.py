"""The structure of the code: which package imports which, no cycles, small files, heavy libraries loaded late.

Imports are resolved to modules of this repository, relative ones too, and every table must be exact: an import that is
allowed but no longer used fails as well.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("flows", "tasks", "model", "infra")
SIBLINGS = {"flows": {"tasks", "infra", "model"}, "tasks": {"infra", "model"}, "model": set(), "infra": set()}
NODE = {"torch", "numpy", "pyarrow", "tokenizers", "safetensors"}
"""The libraries of a bare GPU node, which is all that ``model`` needs there."""
OTHERS = {
    "model.data.word_splitting": {"spacy", "sacremoses"},
    "model.export.mlflow_model": {"mlflow", "pandas"},
    "model.decoding.sentence_splitting": {"sentencex"},
    "model.export.ctranslate2": {"ctranslate2"},
    "model.export.ctranslate2_runtime": {"ctranslate2"},
    "model.export.huggingface": {"transformers"},
    "model.experimental.packed_attention_triton": {"triton"},
}
"""Modules that no node needs, or GPU nodes alone, and the libraries that each of them alone may import besides."""
EXECUTED = {"model.export.mlflow_model"}
"""MLflow executes this file by its path, outside any package: its imports cannot be relative."""
TORCH_FREE = {
    "model",
    "model.errors",
    "model.config",
    "model.config.keying",
    "model.config.normalise",
    "model.config.paper_models",
    "model.config.special_pieces",
    "model.decoding",
    "model.decoding.translation",
    "model.data",
    "model.data.bpe",
    "model.data.shards",
    "model.data.word_splitting",
    "model.lazy_import",
    "model.metric_names",
    "model.training",
    "model.training.flops",
}
"""What ``tasks`` may import of ``model``; none of it loads torch, directly or not."""
PREFECT = {"tasks.engine.prefect_runner", "flows.orchestration"}
MATPLOTLIB = {"tasks.evaluation.network_plots", "tasks.evaluation.plots"}

ALLOWED: dict[str, dict[str, set[str]]] = {
    "flows": {
        "flows.api": {
            "flows.inference",
            "flows.inspection",
            "flows.orchestration",
            "flows.runner",
            "flows.runs",
            "flows.views",
        },
        "flows.cli": {"flows.runner", "flows.runs", "flows.views"},
        "flows.commands": {
            "flows.inference",
            "flows.inspection",
            "flows.orchestration",
            "flows.reproduce",
            "flows.runner",
            "flows.runs",
            "flows.tuning",
            "flows.views",
            "flows.web",
            "flows.website",
        },
        "flows.inference": {"flows.views"},
        "flows.inspection": {"flows.runner", "flows.runs"},
        "flows.orchestration": {
            "flows.inspection",
            "flows.reproduce",
            "flows.runner",
            "flows.runs",
            "flows.tuning",
            "flows.views",
        },
        "flows.reproduce": {"flows.runs", "flows.synthetic_text"},
        "flows.runner": {"flows.reproduce", "flows.runs"},
        "flows.tuning": {"flows.runner", "flows.runs"},
        "flows.synthetic_text": {"flows.runs"},
        "flows.views": {"flows.inspection", "flows.runner", "flows.tuning"},
        "flows.web": {"flows.inference"},
        "flows.website": {"flows.inspection", "flows.runner"},
    },
    "tasks": {
        "tasks.bpe": {"tasks.cleaning", "tasks.corpus", "tasks.engine", "tasks.lazy_libraries"},
        "tasks.cleaning": {"tasks.lazy_libraries"},
        "tasks.corpus": {"tasks.demo", "tasks.engine", "tasks.lazy_libraries", "tasks.tables"},
        "tasks.engine": {"tasks.durations"},
        "tasks.evaluation": {"tasks.durations", "tasks.lazy_libraries", "tasks.tables"},
        "tasks.registration": {
            "tasks.corpus",
            "tasks.durations",
            "tasks.evaluation",
            "tasks.lazy_libraries",
            "tasks.reporting",
        },
        "tasks.reporting": {
            "tasks.cleaning",
            "tasks.corpus",
            "tasks.engine",
            "tasks.evaluation",
            "tasks.lazy_libraries",
        },
        "tasks.stages": {
            "tasks.bpe",
            "tasks.cleaning",
            "tasks.corpus",
            "tasks.engine",
            "tasks.evaluation",
            "tasks.lazy_libraries",
            "tasks.registration",
            "tasks.reporting",
            "tasks.training",
        },
        "tasks.training": {"tasks.engine"},
    },
    "model": {
        "model.average": {"model.config", "model.errors", "model.job", "model.network", "model.training"},
        "model.data": {"model.config", "model.errors", "model.lazy_import", "model.network"},
        "model.decoding": {"model.config", "model.data", "model.job", "model.network"},
        "model.export": {"model.config", "model.data", "model.decoding", "model.network"},
        "model.job": {"model.config", "model.errors"},
        "model.experimental": {"model.data", "model.errors", "model.network", "model.numerics", "model.training"},
        "model.network": {"model.config", "model.errors"},
        "model.numerics": {"model.config", "model.job"},
        "model.speed": {"model.data", "model.job", "model.training"},
        "model.train": {"model.config", "model.experimental", "model.job", "model.network", "model.training"},
        "model.training": {
            "model.config",
            "model.data",
            "model.decoding",
            "model.errors",
            "model.job",
            "model.metric_names",
            "model.network",
            "model.numerics",
        },
        "model.translate": {
            "model.config",
            "model.data",
            "model.decoding",
            "model.errors",
            "model.job",
            "model.metric_names",
            "model.network",
            "model.numerics",
        },
        "model.translate_text": {"model.decoding", "model.errors", "model.job", "model.network", "model.translate"},
    },
    "infra": {
        "infra.extras": {"infra.errors"},
        "infra.guards": {"infra.errors"},
        "infra.launch": {"infra.errors", "infra.extras", "infra.processes"},
        "infra.processes": {"infra.errors", "infra.extras"},
        "infra.servers": {"infra.errors", "infra.processes"},
        "infra.service": {"infra.errors", "infra.extras", "infra.processes", "infra.servers", "infra.tracking"},
        "infra.site": {"infra.errors", "infra.processes", "infra.servers", "infra.store"},
        "infra.store": {"infra.errors", "infra.guards", "infra.processes"},
        "infra.tracking": {"infra.errors", "infra.guards", "infra.processes", "infra.servers", "infra.store"},
    },
}
"""Imports between the units of each package, lazy ones included. A unit is a sub-package or a module at the top."""

HEAVY = {"torch", "prefect", "mlflow", "matplotlib", "polars", "numpy", "pyarrow", "tokenizers"}
MOST_LINES = 400
MOST_DOCSTRING_LINES = 8
EMPTY_WORDS = {"utils", "util", "helpers", "common", "manager", "misc"}


def sources() -> dict[str, Path]:
    """Every module of the four packages, by its name."""
    return {module_name(path): path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py"))}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def syntax(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path, *, top_only: bool = False) -> set[str]:
    """What a module imports, absolute: for ``from ..config import Model`` both ``model.config`` and
    ``model.config.Model``. With ``top_only`` what its execution imports, so not what functions import."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package.pop()
    found: set[str] = set()
    for node in _executed(syntax(path)) if top_only else ast.walk(syntax(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *(node.module.split(".") if node.module else [])])
            found.add(module)
            found.update(f"{module}.{alias.name}" for alias in node.names)
    return found


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _executed(child)


def libraries(path: Path, *, top_only: bool = False) -> set[str]:
    roots = {name.split(".")[0] for name in imports(path, top_only=top_only)}
    return roots - sys.stdlib_module_names - set(PACKAGES)


@cache
def graph(*, top_only: bool = False) -> dict[str, set[str]]:
    """For each module those of the project that it imports by name."""
    known = sources()
    return {module: (imports(path, top_only=top_only) & known.keys()) - {module} for module, path in known.items()}


def unit(module: str) -> str:
    return ".".join(module.split(".")[:2])


def between_units(modules: Mapping[str, Iterable[str]], package: str) -> dict[str, set[str]]:
    """Imports within a package, between its units."""
    found: dict[str, set[str]] = {}
    for module, others in modules.items():
        inside = {unit(o) for o in others if o.startswith(f"{package}.")} - {unit(module)}
        if module.startswith(f"{package}.") and inside:
            found.setdefault(unit(module), set()).update(inside)
    return found


def cycle(edges: Mapping[str, Iterable[str]]) -> list[str]:
    """Some cycle, from a node back to it; empty where there is none."""
    state: dict[str, str] = {}

    def visit(node: str, path: list[str]) -> list[str]:
        state[node] = "open"
        for other in sorted(edges.get(node, ())):
            if state.get(other) == "open":
                return [*path[path.index(other) :], other]
            if other not in state and (found := visit(other, [*path, other])):
                return found
        state[node] = "done"
        return []

    return next((found for node in sorted(edges) if node not in state and (found := visit(node, [node]))), [])


def reached(edges: Mapping[str, Iterable[str]], module: str) -> set[str]:
    """The module and all that its execution imports: parents of what it names too."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        if (name := waiting.pop()) in found:
            continue
        found.add(name)
        parts = name.split(".")
        waiting += [*edges.get(name, ()), *(".".join(parts[:n]) for n in range(1, len(parts)))]
    return found


SOURCES = sources()
each_module = pytest.mark.parametrize(("module", "path"), SOURCES.items(), ids=SOURCES)


@each_module
def test_packages_import_one_way(module: str, path: Path) -> None:
    package = module.split(".")[0]
    roots = {name.split(".")[0] for name in imports(path)}
    assert roots & set(PACKAGES) - {package} <= SIBLINGS[package]
    if package == "model":
        assert libraries(path) <= NODE | OTHERS.get(module, set())
    elif package == "tasks":
        of_model = {name for name in imports(path) & SOURCES.keys() if name.split(".")[0] == "model"}
        assert of_model <= TORCH_FREE
        assert "torch" not in libraries(path)
    if package == "flows":
        assert not {"torch", "mlflow"} & libraries(path, top_only=True)
    if package in ("flows", "tasks") and unit(module) not in PREFECT and module not in PREFECT:
        assert "prefect" not in libraries(path)
    if module not in MATPLOTLIB:
        assert "matplotlib" not in libraries(path)
    if not module.startswith(("flows.", "model.export")):
        assert not any(name.startswith("model.export") for name in imports(path))


@each_module
def test_model_can_be_packaged_under_another_name(module: str, path: Path) -> None:
    absolute = [n.module for n in ast.walk(syntax(path)) if isinstance(n, ast.ImportFrom) and not n.level]
    plain = [a.name for n in ast.walk(syntax(path)) if isinstance(n, ast.Import) for a in n.names]
    if module.split(".")[0] == "model" and module not in EXECUTED:
        assert "model" not in {f"{name}".split(".")[0] for name in (*absolute, *plain)}
    elif module.split(".")[0] != "model":
        assert not [n for n in ast.walk(syntax(path)) if isinstance(n, ast.ImportFrom) and n.level], "absolute, here"


def test_only_model_loads_torch() -> None:
    edges = graph(top_only=True)
    loading = {name for name, path in SOURCES.items() if "torch" in libraries(path, top_only=True)}
    assert SOURCES.keys() >= TORCH_FREE, "a module of the list is gone"
    for module in (*TORCH_FREE, *(name for name in SOURCES if name.split(".")[0] != "model")):
        found = reached(edges, module) & loading
        assert not found, f"{module} loads torch by {found}"


@pytest.mark.parametrize("package", PACKAGES)
def test_sub_packages_import_by_the_table_which_has_no_cycle(package: str) -> None:
    assert between_units(graph(), package) == ALLOWED[package]
    assert not cycle(ALLOWED[package])


def test_no_cycle_between_modules() -> None:
    assert not cycle(graph())


@each_module
def test_files_hold_one_idea(module: str, path: Path) -> None:
    lines = path.read_text().count("\n")
    assert lines <= MOST_LINES, f"{lines} lines: two ideas?"
    assert not EMPTY_WORDS & {*module.split(".")}
    docstring = ast.get_docstring(syntax(path))
    assert docstring, "a module says what it does"
    if path.name == "__init__.py":
        assert len(docstring.splitlines()) <= MOST_DOCSTRING_LINES


def test_every_folder_is_a_package() -> None:
    folders = {path.parent for path in SOURCES.values()}
    assert not [folder for folder in folders if not (folder / "__init__.py").exists()]


def loaded_by(folder: Path, *words: str) -> set[str]:
    """All modules that are loaded when a command ends."""
    code = (
        "import sys\nfrom flows import cli\nsys.argv = ['repro', *sys.argv[1:]]\n"
        "try:\n    cli.main()\nfinally:\n    print('\\nloaded', *sys.modules)"
    )
    environment = os.environ | {"REPRO_ROOT": str(folder)}
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    return set(done.stdout.rpartition("\nloaded ")[2].split())


def test_a_list_of_commands_loads_none_of_them(tmp_path: Path) -> None:
    for words in (["--help"], ["--version"]):
        own = {name for name in loaded_by(tmp_path, *words) if name.split(".")[0] in PACKAGES}
        assert "flows.cli" in own
        assert not [name for name in own if name.startswith(("flows.commands.", "flows.runs", "tasks", "model"))]


@pytest.mark.parametrize(
    ("words", "module"), [("plan demo", "flows.reproduce"), ("run --help", "flows.commands.run")], ids=["plan", "run"]
)
def test_a_command_that_computes_nothing_loads_no_heavy_library(words: str, module: str, tmp_path: Path) -> None:
    loaded = loaded_by(tmp_path, *words.split())
    assert module in loaded
    assert not loaded & HEAVY
    assert not [name for name in loaded if name.startswith("flows.commands.sw")], "only the command that is called"
