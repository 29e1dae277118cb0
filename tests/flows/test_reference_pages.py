"""docs/commands.md, docs/run-fields.md and docs/python.md are what the program says now."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from flows.cli import COMMANDS

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


def test_the_pages_have_every_command_and_table(reference: ModuleType) -> None:
    text = reference.commands()
    assert not [name for name in COMMANDS if f"## repro {name}\n" not in text]
    assert f"{DOCS.parent}" not in text
    fields = reference.run_fields()
    assert "| `updates` | whole number | `100_000` | Optimizer steps (§5.2). |" in fields
    assert "### LengthRatio" in fields
