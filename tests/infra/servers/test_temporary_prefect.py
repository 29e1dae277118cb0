"""A run's own Prefect server is started again when it ends, and ends with the run."""

import os
import signal
from pathlib import Path

import psutil
import pytest
from patience import wait_for
from stand_ins import UVICORN

from infra.servers import temporary_prefect
from infra.servers.loopback import healthy
from infra.servers.temporary_prefect import temporary_server

RESTARTS = 2


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "uvicorn.py").write_text(UVICORN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(temporary_prefect, "KEEP_SECONDS", 0.02)
    monkeypatch.setattr(temporary_prefect, "RESTARTS", RESTARTS)


def servers() -> list[psutil.Process]:
    own = psutil.Process().children()
    return [child for child in own if child.status() != psutil.STATUS_ZOMBIE and "uvicorn" in child.cmdline()]


@pytest.mark.usefixtures("stand_in")
def test_a_server_that_is_killed_is_started_again_at_its_address(tmp_path: Path) -> None:
    said: list[str] = []
    with temporary_server(tmp_path, said.append, print) as api:
        for kills in range(1, RESTARTS + 1):
            (server,) = servers()
            os.kill(server.pid, signal.SIGKILL)
            wait_for(lambda kills=kills: len(said) == kills)
            wait_for(lambda: healthy(f"{api}/health"))
        assert said[0] == "the run's Prefect server ended with status -9; it is started again"
        (server,) = servers()
        os.kill(server.pid, signal.SIGKILL)
        wait_for(lambda: not servers())
        assert len(said) == RESTARTS, "a server that cannot stay is not started for ever"
    assert not servers()


@pytest.mark.usefixtures("stand_in")
def test_an_error_of_the_run_or_of_what_is_done_meanwhile_ends_the_server(tmp_path: Path) -> None:
    addresses: list[str] = []
    with pytest.raises(KeyError), temporary_server(tmp_path, print, addresses.append) as api:
        assert addresses == [api]
        assert healthy(f"{api}/health")
        raise KeyError
    assert not servers()
    with pytest.raises(KeyError), temporary_server(tmp_path, print, {}.__getitem__):
        pass
    assert not servers()
