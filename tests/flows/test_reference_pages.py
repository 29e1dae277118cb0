"""docs/commands.md, docs/run-fields.md and docs/python.md are what the program says now."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference_script", DOCS / "reference.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["commands.md", "run-fields.md", "python.md"])
def test_a_page_made_from_the_program_is_current(page: str, reference: ModuleType) -> None:
    assert (DOCS / page).read_text() == reference.PAGES[page](), "run `make reference`"
