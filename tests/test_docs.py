"""The documentation: what the README promises about itself."""

from pathlib import Path

TOP = Path(__file__).resolve().parents[1]


def test_the_readme_is_short_and_names_the_licence_last() -> None:
    lines = (TOP / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    assert lines[-1] == "No licence has been chosen yet."
