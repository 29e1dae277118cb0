"""The programs of ``docs`` as modules."""

import importlib.util
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"


def docs_script(path: str) -> Any:
    """Execute a file below ``docs`` as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{Path(path).stem}", DOCS / path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
