"""Filters of a user's files: every edit that may change what they keep changes the key of ``clean``, no other does."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from small_pipeline import run_small

from flows import api
from flows.runner.find_run import find_run
from flows.runner.request import RunRequest
from infra.errors import BadConfiguration
from tasks.engine.own_classes import own_code

RUNS = """
'''Runs of my own.'''
from dataclasses import dataclass, replace

import polars as pl

from flows.runs import DEMO
from my_constants import *
from my_steps import STEPS
import my_words

BANNED = {"dog"}
BANNED.update({"cat"})
LENGTHS = {"least": 1}
LENGTHS["most"] = 90

@dataclass(frozen=True)
class Fits:
    '''Keeps a pair.'''
    name: str = "fits"
    weight: int = 1

    def keep(self) -> pl.Expr:
        from my_late import LATE
        from my_package.sides import SIDE
        text = pl.col(SIDE)
        for step in STEPS:
            text = step(text)
        words = len(BANNED) + LENGTHS["least"] + LEAST + LATE + my_words.FEWEST + self.extra
        return text.str.len_chars() > words

Fits.extra = 2

def variant(weight):
    filters = replace(DEMO.filters, rules=(*DEMO.filters.rules, Fits(weight=weight)))
    return replace(DEMO, filters=filters)

MINE = variant(1)
"""
STEPS = """
STEPS = []

def step(function):
    STEPS.append(function)
    return function

@step
def plain(text):
    return text
"""
FILES = {
    "my_runs.py": RUNS,
    "my_constants.py": "LEAST = 1\n",
    "my_steps.py": STEPS,
    "my_words.py": "FEWEST = 1\n",
    "my_late.py": "LATE = 1\n",
    "my_package/__init__.py": "",
    "my_package/sides.py": 'SIDE = "source"\n',
    "unrelated.py": "FREE = 1\n",
}
CHANGES = {
    "the method": ("my_runs.py", "len_chars() >", "len_chars() >="),
    "a constant of a neighbour": ("my_words.py", "FEWEST = 1", "FEWEST = 2"),
    "a set updated at module level": ("my_runs.py", '{"cat"}', '{"cat", "cow"}'),
    "a dict item set later": ("my_runs.py", '["most"] = 90', '["least"] = 9'),
    "an import inside a method": ("my_late.py", "LATE = 1", "LATE = 2"),
    "from x import *": ("my_constants.py", "LEAST = 1", "LEAST = 2"),
    "a package beside the file": ("my_package/sides.py", "source", "target"),
    "a decorator's registry": ("my_steps.py", "return text", "return text.str.to_lowercase()"),
    "an attribute set after the class": ("my_runs.py", "extra = 2", "extra = 3"),
}
SAME = {
    "a comment": ("my_runs.py", "Fits.extra = 2", "Fits.extra = 2  # two"),
    "a docstring": ("my_runs.py", "'''Keeps a pair.'''", "'''Keeps some pairs.'''"),
    "formatting": ("my_words.py", "FEWEST = 1", "FEWEST = (\n    1\n)"),
    "a file that nothing imports": ("unrelated.py", "FREE = 1", "FREE = 2"),
    "a run": ("my_runs.py", "MINE =", "OTHER = replace(DEMO, name='other')\nMINE ="),
    "runs by a function, in a tuple and a dict": (
        "my_runs.py",
        "MINE =",
        "A, B = variant(2), variant(3)\nMORE = {f'w{n}': variant(n) for n in range(3)}\nMINE =",
    ),
    "a run with its imports": (
        "my_runs.py",
        "MINE =",
        "from flows.runs import MULTI30K_ENDE\nfrom model.config import Averaging\n"
        "LAST: object = replace(MULTI30K_ENDE, averaging=Averaging(1))\nMINE =",
    ),
}
RUNS_THAT_COUNT = {
    "a class uses it": ("USED = replace(DEMO, name='a')\nFits.extra = USED.decoding.beam", "name='a'", "name='b'"),
    "it changes a set": ("TINY = DEMO", "DEMO", "(BANNED.pop(), DEMO)[1]"),
    "its function changes a set": (
        "def add():\n    BANNED.add('cow')\n    return DEMO\nTINY = DEMO",
        "= DEMO",
        "= add()",
    ),
    "its function is bound twice": (
        "def add():\n    return BANNED.pop() and DEMO\nTINY = DEMO\ndef add():\n    return DEMO",
        "= DEMO",
        "= add()",
    ),
    "its dataclass has a constructor of its own": (
        "@dataclass\nclass Counted:\n    def __init__(self):\n        Fits.extra += 1\nTINY = DEMO",
        "= DEMO",
        "= (Counted(), DEMO)[1]",
    ),
}


def write(folder: Path, files: Mapping[str, str] = FILES) -> str:
    """Write the files; return the name of the run."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return f"{folder / 'my_runs.py'}:MINE"


def edited(file: str, before: str, after: str) -> dict[str, str]:
    assert before in FILES[file]
    return FILES | {file: FILES[file].replace(before, after)}


def key(name: str) -> str:
    """The key of ``clean``."""
    [found] = api.plan(name, until="clean").filter(stage="clean")["key"]
    return str(found)


def code(name: str) -> str:
    """The digest of the run's filter."""
    return own_code(type(find_run(name).filters.rules[-1]))


@pytest.fixture(autouse=True)
def _root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_ROOT", f"{tmp_path / 'root'}")


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_edit_that_may_change_the_result_changes_the_key(change: tuple[str, str, str], tmp_path: Path) -> None:
    first = code(write(tmp_path))
    assert code(write(tmp_path, edited(*change))) != first
    assert code(write(tmp_path)) == first, "it is the text that counts, not its time"


@pytest.mark.parametrize("change", SAME.values(), ids=SAME)
def test_comments_formatting_and_further_runs_change_no_code(change: tuple[str, str, str], tmp_path: Path) -> None:
    first = code(write(tmp_path))
    assert code(write(tmp_path, edited(*change))) == first


@pytest.mark.parametrize("change", RUNS_THAT_COUNT.values(), ids=RUNS_THAT_COUNT)
def test_a_run_counts_where_it_may_change_a_class(change: tuple[str, str, str], tmp_path: Path) -> None:
    text, before, after = change
    assert before in text
    first = code(write(tmp_path, edited("my_runs.py", "MINE =", f"{text}\nMINE =")))
    assert code(write(tmp_path, edited("my_runs.py", "MINE =", f"{text.replace(before, after)}\nMINE ="))) != first


def test_a_file_that_imports_by_computed_names_consists_of_all_beside_it(tmp_path: Path) -> None:
    dynamic = edited(
        "my_words.py",
        "FEWEST = 1",
        "from importlib import import_module\nFEWEST = import_module('unre' + 'lated').FREE",
    )
    name = write(tmp_path, dynamic)
    first = code(name)
    assert find_run(name).filters.rules[-1].keep().meta.eq(find_run(write(tmp_path)).filters.rules[-1].keep())
    assert code(write(tmp_path, dynamic | {"unrelated.py": "FREE = 2"})) != first


def test_files_of_one_name_in_two_folders_keep_their_own_code(tmp_path: Path) -> None:
    names = [write(tmp_path / "a"), write(tmp_path / "b", edited(*CHANGES["an import inside a method"]))]
    texts = [f"{find_run(name).filters.rules[-1].keep()}" for name in names]
    assert texts[0] != texts[1]
    assert [f"{find_run(name).filters.rules[-1].keep()}" for name in names] == texts
    assert code(names[0]) != code(names[1])


CORPUS = f"""
import sys
sys.path.append({str(Path(__file__).parents[2] / "support")!r})
from dataclasses import dataclass, replace
from pathlib import Path
import polars as pl
from small_pipeline import small_run
from my_limits import LEAST

@dataclass(frozen=True)
class Least:
    name: str = "least"

    def keep(self) -> pl.Expr:
        return pl.col("source").str.len_chars() >= LEAST

SMALL = small_run(Path({{mirror!r}}))
FILTERS = replace(SMALL.filters, rules=(*SMALL.filters.rules, Least()), max_rejected=1)
MINE = replace(SMALL, name="mine", filters=FILTERS)
"""


def test_a_process_that_goes_on_after_an_edit_does_what_a_fresh_one_does(mirror: Path, tmp_path: Path) -> None:
    name = write(tmp_path, {"my_runs.py": CORPUS.format(mirror=f"{mirror}"), "my_limits.py": "LEAST = 1\n"})
    found = []
    for least in (1, 30):
        (tmp_path / "my_limits.py").write_text(f"LEAST = {least}\n")
        planned = key(name)
        program = f"from flows import api; print(api.plan({name!r}, until='clean').write_json())"
        fresh = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        assert planned in [row["key"] for row in json.loads(fresh.stdout)]
        run_small(RunRequest(name, until="clean"))
        found.append(api.artifact("mine/clean").facts["rejected_by"]["least"])
    assert found[0] == 0 < found[1]


def test_an_error_of_a_neighbour_is_a_sentence_that_names_the_file(tmp_path: Path) -> None:
    name = write(tmp_path, FILES | {"my_words.py": "FEWEST ="})
    with pytest.raises(BadConfiguration, match=r"my_runs\.py: SyntaxError"):
        find_run(name)
