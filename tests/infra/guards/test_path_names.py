"""A name that the guard accepts is a path below any folder; every other name is refused."""

import os
import random
from pathlib import Path

import pytest

from infra.errors import BadData
from infra.guards.path_names import MOST_BYTES, is_artifact_name, is_path_name, is_plain_name, path_below

PIECES = (
    "",
    ".",
    "..",
    "a",
    "b.txt",
    "...",
    "a b",
    "ä",
    "\\",
    "\0",
    "\n",
    "\x1b[2J",
    "\u202e",
    "\udcff",
    "~",
    "C:",
    "/",
)


def test_an_accepted_name_stays_below_its_folder(tmp_path: Path) -> None:
    draw = random.Random(1)
    accepted = 0
    for _ in range(5000):
        name = "".join(draw.choice((*PIECES, "/")) for _ in range(draw.randint(0, 6)))
        if not is_path_name(name):
            with pytest.raises(BadData):
                path_below(tmp_path, name)
            continue
        accepted += 1
        place = f"{path_below(tmp_path, name)}"
        assert os.path.normpath(place) == place == f"{tmp_path}/{name}"
        assert name.isprintable()
    assert accepted > 100


def test_a_part_has_room_for_the_suffix_of_a_file_that_is_being_written(tmp_path: Path) -> None:
    assert not is_path_name("a/" + "ä" * (MOST_BYTES // 2 + 1))
    path_below(tmp_path, "ä" * (MOST_BYTES // 2)).with_suffix(".0123abcd.partial").write_text("")


def test_stages_and_keys_are_plain_names() -> None:
    assert is_plain_name("learn_bpe")
    assert is_plain_name("0123abcd")
    assert is_artifact_name("train/0123abcd")
    for name in ("", "..", "a/b", "a.partial-1", "a b", "größe", "a\n", "x" * 300, None, 3):
        assert not is_plain_name(name)
        assert not is_artifact_name(f"train/{name}") or name in (None, 3)
    for name in ("train", "/k", "train/", "a/b/c", ["train/k"]):
        assert not is_artifact_name(name)
