"""The house keeps its shape: imports go one way, files stay small, heavy libraries are loaded late."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HOUSE = Path(__file__).resolve().parents[1]
PACKAGES = ("flows", "tasks", "model", "infra")
STANDARD = sys.stdlib_module_names
NODE = {"torch", "numpy", "pyarrow", "tokenizers", "safetensors"}
OTHERS = {
    "model.pyfunc": {"mlflow", "pandas"},
    "model.sentences": {"sentencex"},
    "model.export.ctranslate2": {"ctranslate2"},
    "model.export.serving": {"ctranslate2"},
    "model.export.huggingface": {"transformers"},
}
"""Modules that no node needs, and the libraries that each of them alone may know besides."""
TORCH_FREE = {
    "model.config",
    "model.fields",
    "model.bpe",
    "model.shards",
    "model.endings",
    "model.presets",
    "model.flops",
    "model.parameters",
}
PREFECT = {
    "tasks.orchestration",
    "flows.deployment",
    "flows.deploying",
    "flows.going",
    "flows.handing_over",
    "flows.notifying",
}
MOST_LINES = 400
EMPTY_WORDS = {"utils", "util", "helpers", "common", "manager", "misc"}


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((HOUSE / package).rglob("*.py"))]


def module_name(path: Path) -> str:
    parts = path.relative_to(HOUSE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, *, top_only: bool = False) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    for node in tree.body if top_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def roots(path: Path, *, top_only: bool = False) -> set[str]:
    return {name.split(".")[0] for name in imports(path, top_only=top_only)}


@pytest.mark.parametrize("path", sources(), ids=module_name)
def test_imports_go_one_way(path: Path) -> None:
    package, name = path.relative_to(HOUSE).parts[0], module_name(path)
    siblings = roots(path) & set(PACKAGES) - {package}
    if package == "model":
        outside = roots(path) - STANDARD - NODE - {"model"}
        assert outside <= OTHERS.get(name, set())
        if name in TORCH_FREE:
            assert "torch" not in roots(path)
    if name == "model.export.serving":
        assert roots(path) - STANDARD == {"ctranslate2", "tokenizers"}, "it goes with a model's folder, alone"
    if package != "flows" and not name.startswith("model.export"):
        assert not any(other.startswith("model.export") for other in imports(path))
    if package == "infra":
        assert not siblings
    if package == "tasks":
        assert siblings <= {"infra", "model"}
        of_model = {n for n in imports(path) if n.startswith("model.") and n.count(".") == 1}
        assert of_model <= TORCH_FREE
        assert "torch" not in roots(path)
        if name not in PREFECT:
            assert "prefect" not in roots(path)
    if package == "flows":
        assert not {"torch", "mlflow"} & roots(path, top_only=True)
        if name not in PREFECT:
            assert "prefect" not in roots(path)


@pytest.mark.parametrize("path", sources(), ids=module_name)
def test_files_hold_one_idea(path: Path) -> None:
    lines = path.read_text().count("\n")
    assert lines <= MOST_LINES, f"{lines} lines: two ideas?"
    assert path.stem not in EMPTY_WORDS
    assert ast.get_docstring(ast.parse(path.read_text())), "a module says what comes in, what goes out"


def test_the_story_loads_no_heavy_library() -> None:
    check = (
        "import sys, flows.cli; print([m for m in ('torch', 'prefect', 'mlflow', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, cwd=HOUSE)
    assert done.stdout.strip() == "[]"
