"""Walking through a folder while others remove what is in it."""

import shutil
from pathlib import Path

from infra.store.files import files_below, names_by_stage


def test_folders_that_are_removed_meanwhile_are_passed_over(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    found = files_below(tmp_path)
    first = next(found)
    for other in {tmp_path / "a", tmp_path / "b"} - {first.parent}:
        shutil.rmtree(other)
    assert [*found] == []


def test_folders_of_others_in_a_root_are_not_opened(tmp_path: Path) -> None:
    for name in ("clean", "lost+found", ".snapshots", "prefect", "service"):
        (tmp_path / name).mkdir()
    assert [*names_by_stage(tmp_path)] == [("clean", [])], "the first folder of a disk is its own, for root alone"
