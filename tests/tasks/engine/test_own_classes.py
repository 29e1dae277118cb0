"""The code of a user's class is part of the key: an edited rule is a miss, and its name cannot collide."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from tasks.cleaning.filters import Empty
from tasks.engine.keys import canonical
from tasks.engine.own_classes import own_code

RULES = """
from dataclasses import dataclass
from helpers import limit
import helpers
LEAST = 2
OTHER = 5

def fits(n):
    return n >= LEAST

@dataclass(frozen=True)
class Empty:
    size: int = 3

    def keep(self):
        return fits(self.size) and limit()

UNRELATED = Empty(4)
"""
HELPERS = "FAR = 9\n\ndef limit():\n    return FAR\n\ndef unused():\n    return 1\n"


def code(folder: Path, rules: str = RULES, helpers: str = HELPERS) -> str:
    """The code of the class Empty of ``rules``, loaded from a file beside ``helpers``."""
    (folder / "rules.py").write_text(rules)
    (folder / "helpers.py").write_text(helpers)
    for name in ("rules", "helpers"):
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        assert spec
        assert spec.loader
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        if name == "rules":
            sys.path.insert(0, str(folder))
            sys.modules.pop("helpers", None)
            spec.loader.exec_module(module)
            sys.path.remove(str(folder))
    kind: Any = sys.modules["rules"].Empty
    assert canonical(kind())["code"] == own_code(kind)
    return own_code(kind)


@pytest.fixture(autouse=True)
def _modules(monkeypatch: pytest.MonkeyPatch) -> Any:
    own_code.cache_clear()
    yield
    for name in ("rules", "helpers"):
        sys.modules.pop(name, None)


def test_the_code_is_the_same_on_every_python(tmp_path: Path) -> None:
    assert code(tmp_path) == "51d07568509b", "as Python 3.11, 3.12 and 3.13 give it"


def test_what_the_class_uses_counts_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    first = code(tmp_path)
    for unrelated in (("OTHER = 5", "OTHER = 6"), ("Empty(4)", "Empty(5)"), ("LEAST = 2", "LEAST = 2  # two")):
        assert code(tmp_path, RULES.replace(*unrelated)) == first
    assert code(tmp_path, helpers=HELPERS.replace("return 1", "return 2")) == first
    for related in (
        ("LEAST = 2", "LEAST = 3"),
        ("n >= LEAST", "n > LEAST"),
        ("fits(self.size) and", "fits(self.size) or"),
    ):
        assert code(tmp_path, RULES.replace(*related)) != first
    assert code(tmp_path, helpers=HELPERS.replace("FAR = 9", "FAR = 8")) != first


def test_a_class_of_this_project_has_the_version_of_its_stage_instead(tmp_path: Path) -> None:
    assert "code" not in canonical(Empty())
    code(tmp_path)
    assert canonical(sys.modules["rules"].Empty())["class"] == canonical(Empty())["class"] == "Empty"
    assert canonical(sys.modules["rules"].Empty()) != canonical(Empty())


def test_a_class_in_no_file_is_refused() -> None:
    kind = type("Typed", (), {"__module__": "nowhere"})
    with pytest.raises(TypeError, match="Typed is defined in no file: write the class into one"):
        own_code(kind)
