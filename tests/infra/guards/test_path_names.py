"""A name that the guard accepts is a path below any folder; what people chose becomes the name of a file."""

import os
import random
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from infra.errors import BadData
from infra.guards.path_names import MOST_BYTES, file_name, is_artifact_name, is_path_name, is_plain_name, path_below

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


NAMES = st.text(st.sampled_from("aeöüß-_./ 1"), max_size=8) | st.text()


@given(NAMES, NAMES)
@example("Größe", "Grüße")
@example("a b", "a-b")
@example("x" * 300, "x" * 301)
def test_two_names_have_two_files(one: str, other: str) -> None:
    assert (file_name(one) == file_name(other)) == (one == other)


@given(st.text())
@example("..")
@example("")
@example("a\n")
def test_a_file_name_is_harmless_and_fits(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,100}", file_name(name))


@given(st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z"))
def test_ascii_names_of_runs_are_unchanged(name: str) -> None:
    assert file_name(name) == name
