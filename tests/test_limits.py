"""Print how large the project is: lines, words, commands and habits that make code hard to read.

``pytest -s tests/test_limits.py`` shows the table. The figures are no gate on a single commit.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from flows.cli import COMMANDS

ROOT = Path(__file__).parent.parent
PRODUCT = ("flows", "tasks", "model", "infra")
GENERATED_PAGES = {"commands.md", "run-fields.md", "python.md"}


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def lines(*folders: str) -> int:
    return sum(len(path.read_text().splitlines()) for path in python_files(*folders))


def hand_written_pages() -> list[Path]:
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    pages.append(ROOT / "benchmarks" / "notebook.md")  # the README there is generated
    pages += [page for page in (ROOT / "docs").glob("*.md") if page.name not in GENERATED_PAGES]
    return pages


def words(pages: list[Path]) -> int:
    return sum(len(page.read_text().split()) for page in pages)


def nodes(*folders: str) -> Iterator[ast.AST]:
    for path in python_files(*folders):
        yield from ast.walk(ast.parse(path.read_text()))


def packs_statements(node: ast.AST) -> bool:
    """Whether an assignment binds several names to several expressions in one line, and does not swap them."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    targets = node.targets[0]
    if not isinstance(targets, ast.Tuple):
        return False
    bound = {ast.unparse(target) for target in targets.elts}
    read = {ast.unparse(value) for value in node.value.elts}
    return bound != read


def catches_everything(node: ast.AST) -> bool:
    """Whether it is ``except Exception``, a bare ``except`` or ``suppress(Exception)``."""
    if isinstance(node, ast.ExceptHandler):
        return node.type is None or bool(re.search(r"\bException\b", ast.unparse(node.type)))
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
        return any(ast.unparse(argument) == "Exception" for argument in node.args)
    return False


def asks_for_a_store(node: ast.AST) -> bool:
    """Whether it is an ``isinstance`` that asks which kind of store it has."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func) != "isinstance":
        return False
    return "Store" in ast.unparse(node.args[1])


def count_outside_the_store() -> int:
    outside = [path for path in python_files(*PRODUCT) if (ROOT / "infra" / "store") not in path.parents]
    return sum(asks_for_a_store(node) for path in outside for node in ast.walk(ast.parse(path.read_text())))


def test_the_size_of_the_project_is_printed() -> None:
    figures = {
        "product, lines of Python": lines(*PRODUCT),
        "tests, lines": lines("tests"),
        "benchmarks, lines": lines("benchmarks"),
        "hand-written words": words(hand_written_pages()),
        "commands": len(COMMANDS),
        "packages of make demo": len(re.findall(r"^[\w.-]+==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)),
        "tuple assignments that pack statements": sum(map(packs_statements, nodes(*PRODUCT))),
        "isinstance of a store outside infra/store": count_outside_the_store(),
        "handlers of every exception": sum(map(catches_everything, nodes(*PRODUCT))),
    }
    for what, figure in figures.items():
        print(f"{what:45} {figure:>7,}")
    assert all(figure >= 0 for figure in figures.values())
