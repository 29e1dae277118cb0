"""The settings of Prefect and MLflow for this process."""

import stat
from pathlib import Path

import pytest

from infra.servers.environment import configure_libraries


def test_other_users_cannot_read_prefects_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_HOME", raising=False)
    folder = tmp_path / "prefect"
    folder.mkdir(mode=0o755)
    configure_libraries(tmp_path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700, "its database holds addresses of notifications"
