"""``repro up``: what a shell needs so that plain prefect and mlflow commands use the root; the foreground's end."""

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from flows.commands.up import up
from infra.errors import JobFailed
from infra.processes.identity import process_identity
from infra.servers.service_settings import Service
from infra.service import lifecycle
from infra.site import Site


@pytest.fixture(autouse=True)
def _plain_world(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PREFECT_HOME", "PREFECT_SERVER_DATABASE_CONNECTION_URL", "REPRO_AUTH", "REPRO_AUTH_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", os.defpath)  # an active environment would be in front already


def in_a_shell(lines: str, **outer: str) -> dict[str, str]:
    """The environment after ``lines``, in a shell that has little beside ``outer``."""
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    script = f"{lines}\nexec '{sys.executable}' -c '{program}'"
    environment = {"PATH": os.environ["PATH"]} | outer
    done = subprocess.run(["sh", "-euc", script], env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def test_without_servers_the_files_of_the_root_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "a root of 100%"
    monkeypatch.setenv("REPRO_ROOT", f"{root}")
    up(print_env=True)
    found = in_a_shell(capsys.readouterr().out, PATH=f"/a b:{os.environ['PATH']}")
    assert (found["REPRO_ROOT"], found["PREFECT_HOME"]) == (f"{root}", f"{root}/prefect")
    assert found["MLFLOW_TRACKING_URI"] == Site.named().tracking
    assert "100%25" in found["PREFECT_SERVER_DATABASE_CONNECTION_URL"]
    assert found["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert "PREFECT_API_URL" not in found
    assert found["PATH"].partition(":")[0] == f"{Path(sys.executable).parent}"


def test_a_service_that_is_up_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REPRO_ROOT", f"{tmp_path}")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", Site.named().tracking)  # printed before `repro up`
    served = Service(tmp_path, prefect_port=4300, mlflow_port=5300, supervisor=process_identity())
    served.folder.mkdir()
    served.write()
    up(print_env=True)
    found = in_a_shell(capsys.readouterr().out)
    assert served.exports.items() <= found.items()


def test_passwords_are_referred_to_and_not_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = "reader:a $secret: of 'some' length"
    expected = {
        "PREFECT_API_AUTH_STRING": secret,
        "MLFLOW_TRACKING_USERNAME": "reader",
        "MLFLOW_TRACKING_PASSWORD": secret.partition(":")[2],
    }
    monkeypatch.setenv("REPRO_AUTH", secret)
    up(print_env=True)
    printed = capsys.readouterr().out
    assert "secret" not in printed
    assert expected.items() <= in_a_shell(printed, REPRO_AUTH=secret).items()
    file = tmp_path / "my auth"
    file.write_text(f"{secret}\n")
    file.chmod(0o600)
    monkeypatch.delenv("REPRO_AUTH")
    monkeypatch.setenv("REPRO_AUTH_FILE", f"{file}")
    up(print_env=True)
    assert expected.items() <= in_a_shell(capsys.readouterr().out).items()


@pytest.mark.parametrize(("status", "end"), [(0, nullcontext()), (1, pytest.raises(JobFailed, match="status 1"))])
def test_the_foreground_fails_only_if_its_supervisor_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, end: Any
) -> None:
    monkeypatch.setenv("REPRO_ROOT", f"{tmp_path}")
    running = lifecycle.RunningService(Service(tmp_path), [], Mock(**{"wait.return_value": status}))
    monkeypatch.setattr(lifecycle, "up", lambda *_: running)
    monkeypatch.setattr(sys.modules[up.__module__], "_close_and_list_interrupted", lambda _: None)
    with end:
        up(foreground=True)
