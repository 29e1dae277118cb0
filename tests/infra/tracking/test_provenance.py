"""The commit that a manifest names is that of this project."""

import subprocess
from pathlib import Path

import pytest

from infra.tracking import provenance


@pytest.mark.parametrize("folder", ["", ".venv/lib/site-packages"])
def test_an_installed_release_does_not_name_the_commit_of_the_repository_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    git = ["git", "-C", f"{tmp_path}", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "first")):
        subprocess.run([*git, *words], check=True)
    module = tmp_path / folder / "infra" / "tracking" / "provenance.py"
    module.parent.mkdir(parents=True)
    monkeypatch.setattr(provenance, "__file__", f"{module}")
    assert len(provenance.commit.__wrapped__()) == (0 if folder else 40)
