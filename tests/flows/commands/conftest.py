"""The working folder of a user with text of their own."""

import gzip
from pathlib import Path

import pytest

from flows.runs.text_settings import UpdateTime
from tasks.demo import corpus as demo_corpus


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the demo's text under names of a user's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("flows.commands.new.time_of_update", lambda run, length: UpdateTime(1.0))
    (tmp_path / "data").mkdir()
    for side in ("en", "de"):
        lines = demo_corpus.content(f"demo/train.{side}")
        (tmp_path / f"data/train.{side}.gz").write_bytes(gzip.compress(lines))
        (tmp_path / f"dev.{side}").write_bytes(demo_corpus.content(f"demo/dev.{side}"))
    return tmp_path
