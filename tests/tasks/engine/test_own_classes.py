"""The code of a user's class is part of the key: an edited rule is a miss, and its name cannot collide."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.errors import BadConfiguration
from tasks.cleaning.filters import Empty
from tasks.engine.keys import canonical
from tasks.engine.own_classes import load_user_file, own_code
from tasks.engine.own_files import read_sources

RULES = """
from dataclasses import dataclass
from helpers import limit
import helpers
LEAST = 2

def fits(n):
    return n >= LEAST

@dataclass(frozen=True)
class Empty:
    size: int = 3

    def keep(self):
        return fits(self.size) and limit()

    class Part:
        pass

RUN = Empty(4)
"""
HELPERS = "FAR = 9\n\ndef limit():\n    return FAR\n"


def own_class(folder: Path, rules: str = RULES, helpers: str = HELPERS) -> Any:
    """The class Empty of ``rules``, loaded from a file beside ``helpers``. None of its values is a run."""
    (folder / "rules.py").write_text(rules)
    (folder / "helpers.py").write_text(helpers)
    return load_user_file(folder / "rules.py", complex).Empty


def code(folder: Path, rules: str = RULES, helpers: str = HELPERS) -> str:
    kind = own_class(folder, rules, helpers)
    assert canonical(kind())["code"] == own_code(kind) != own_code(kind.Part)
    return own_code(kind)


def test_the_code_is_the_same_on_every_python(tmp_path: Path) -> None:
    assert code(tmp_path) == "6c959a242cd2", "as Python 3.11, 3.12 and 3.13 give it"


def test_a_class_of_an_older_text_is_refused_until_it_is_loaded_again(tmp_path: Path) -> None:
    first = own_class(tmp_path)
    digest = own_code(first)
    second = own_class(tmp_path, helpers=HELPERS.replace("9", "8"))
    assert (first(2).keep(), second(2).keep()) == (9, 8)
    assert own_code(second) != digest
    with pytest.raises(BadConfiguration, match=r"Empty is of an older text of .*rules\.py"):
        own_code(first)
    assert own_code(own_class(tmp_path)) == digest


def test_a_neighbour_counts_also_if_python_reaches_its_folder_by_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, link = tmp_path / "own", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    monkeypatch.syspath_prepend(link)
    (folder / "rules.py").write_text("import linked_words\n")
    (folder / "linked_words.py").write_text("FAR = 9\n")
    assert read_sources(folder / "rules.py").keys() == {"", "linked_words"}


def test_a_file_that_failed_leaves_no_neighbours_to_the_next(tmp_path: Path) -> None:
    for name in ("failed", "next"):
        (tmp_path / name).mkdir()
    with pytest.raises(ZeroDivisionError):
        own_class(tmp_path / "failed", "import helpers\n1 / 0\n")
    assert own_class(tmp_path / "next", helpers=HELPERS.replace("9", "8"))(2).keep() == 8


def test_two_classes_of_one_name_are_two(tmp_path: Path) -> None:
    class_text = "from dataclasses import dataclass\n\n\n@dataclass(frozen=True)\nclass Long:\n    pass\n"
    for name in ("en", "de"):
        (tmp_path / f"{name}.py").write_text(class_text)
    (tmp_path / "rules.py").write_text(
        "import en, de\n\n\ndef made():\n    class Long:\n        pass\n    return Long\n\n\nRUN = 1j\n"
    )
    module = load_user_file(tmp_path / "rules.py", complex)
    assert own_code(module.en.Long) != own_code(module.de.Long)
    with pytest.raises(BadConfiguration, match="Long is defined inside a function"):
        own_code(module.made())


def test_a_class_of_this_project_has_the_version_of_its_stage_instead(tmp_path: Path) -> None:
    kind = own_class(tmp_path)
    assert "code" not in canonical(Empty())
    assert canonical(kind())["class"] == canonical(Empty())["class"] == "Empty"
    assert canonical(kind()) != canonical(Empty())


def test_a_class_in_no_file_is_refused() -> None:
    kind = type("Typed", (), {"__module__": "nowhere"})
    with pytest.raises(TypeError, match="Typed is defined in no file: write the class into one"):
        own_code(kind)


def test_a_class_that_python_imported_from_a_file_that_may_be_newer_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "plain_rules.py"
    file.write_text("class Rule:\n    pass\n")
    spec = importlib.util.spec_from_file_location("plain_rules", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "plain_rules", module)
    spec.loader.exec_module(module)
    with pytest.raises(
        BadConfiguration, match=r"plain_rules\.py changed after this process began.*start a new process"
    ):
        own_code(module.Rule)
    monkeypatch.setattr("tasks.engine.own_classes.PROCESS_START", file.stat().st_ctime)
    assert own_code(module.Rule)
