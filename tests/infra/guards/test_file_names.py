"""Names that people chose become file names: ASCII ones unchanged, and no two names the same."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from infra.guards.path_names import file_name

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
