"""Fingerprints of the code that decides each stage's result: the version guard's memory.

A stage's key holds its ``version``, which is bumped by hand. This says when a hand is needed: it hashes the syntax
(no comments, no docstrings) of the stage's module, of what it imports from ``tasks`` and ``model``, relative imports
too, and of the job it launches. What moves and keeps artifacts (``infra``, ``tasks.engine``) does not decide what is in
them.

    python tests/fingerprints.py            which stages changed
    python tests/fingerprints.py --accept   record the present code: results stay the same, or ``version`` was bumped
"""

import ast
import hashlib
import importlib
import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
RECORD = Path(__file__).with_name("fingerprints.json")
MACHINERY = "tasks.engine"
LAUNCHED = re.compile(r"^model(\.[a-z_0-9]+)+$")


def fingerprints() -> dict[str, dict[str, Any]]:
    """``{stage: {"version": n, "code": digest}}`` of the code as it stands."""
    sys.path.insert(0, str(REPOSITORY))
    stages = importlib.import_module("flows.reproduce").STAGES
    found = {}
    for name in stages:
        stage = getattr(importlib.import_module(f"tasks.stages.{name}"), name)
        modules = sorted(reached(f"tasks.stages.{name}", frozenset()))
        digest = hashlib.sha256("\n".join(f"{module} {code_of(module)}" for module in modules).encode()).hexdigest()
        found[name] = {"version": stage.version, "code": digest[:16], "modules": modules}
    return found


def reached(module: str, seen: frozenset[str]) -> frozenset[str]:
    """The repository's modules that ``module`` is made of, imports and launched jobs followed."""
    if module in seen or module == MACHINERY or module.startswith(f"{MACHINERY}.") or not (path := path_of(module)):
        return seen
    seen = seen | {module}
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(syntax(module)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *(node.module.split(".") if node.module else [])])
            names = [source, *(f"{source}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and LAUNCHED.match(node.value):
            names = [node.value]
        else:
            continue
        for name in names:
            if name.split(".")[0] in ("tasks", "model"):
                seen = reached(name, seen)
    return seen


def path_of(module: str) -> Path | None:
    """The module's file; none for a package at the top, and for what is no module."""
    place = REPOSITORY / module.replace(".", "/")
    package = place / "__init__.py" if "." in module else place
    return next((path for path in (place.with_suffix(".py"), package) if path.is_file()), None)


@cache
def syntax(module: str) -> ast.Module:
    path = path_of(module)
    assert path
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            # Strings that stand alone are docstrings.
            node.body = [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]  # type: ignore[attr-defined]
    return tree


@cache
def code_of(module: str) -> str:
    path = path_of(module)
    assert path
    page = path.with_suffix(".html")
    extra = page.read_text() if page.is_file() else ""
    return hashlib.sha256((ast.dump(syntax(module)) + extra).encode()).hexdigest()


def recorded() -> dict[str, dict[str, Any]]:
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def changes() -> list[str]:
    """One sentence for each stage whose code changed under an unchanged version, or that is not recorded."""
    now, before = fingerprints(), recorded()
    found = []
    for name, present in now.items():
        known = before.get(name)
        if known is None or known["version"] != present["version"]:
            found.append(f"{name}: version {present['version']} is not recorded")
        elif known["code"] != present["code"]:
            found.append(f"{name}: its code changed, version is still {present['version']}")
    return found


if __name__ == "__main__":
    if "--accept" in sys.argv:
        RECORD.write_text(json.dumps(fingerprints(), indent=1) + "\n")
    print("\n".join(changes()) or "every stage is as recorded")
