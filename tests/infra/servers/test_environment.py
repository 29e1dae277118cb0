"""The settings of Prefect and MLflow for this process."""

import getpass
import os
import pwd
import stat
import urllib.request
from pathlib import Path

import pytest

from infra.errors import BadConfiguration
from infra.servers.environment import configure_libraries, past_proxies, server_configured
from infra.site import Site
from infra.tracking.provenance import user


def test_other_users_cannot_read_prefects_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_HOME", raising=False)
    folder = tmp_path / "prefect"
    folder.mkdir(mode=0o755)
    configure_libraries(tmp_path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700, "its database holds addresses of notifications"


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without HOME and without an entry in the system's list, as in some containers."""

    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for name in ("HOME", "USER", "LOGNAME", "LNAME", "USERNAME", "XDG_CACHE_HOME", "REPRO_CACHE", "PREFECT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)


@pytest.mark.usefixtures("homeless")
def test_a_user_without_a_home_folder_needs_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not server_configured()
    assert user() == "unknown"
    monkeypatch.setenv("REPRO_ROOT", "s3://bucket/root")
    with pytest.raises(BadConfiguration, match="XDG_CACHE_HOME"):
        Site.named()
    monkeypatch.setenv("REPRO_CACHE", f"{tmp_path}")
    assert Site.named().remote
    monkeypatch.setenv("REPRO_ROOT", "~/root")
    with pytest.raises(BadConfiguration, match="set HOME"):
        Site.named()
    configure_libraries(tmp_path)
    assert Path.home() == tmp_path / "home", "Prefect and others want one"
    assert getpass.getuser() == "unknown"


def test_no_request_to_a_server_of_this_machine_goes_to_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", "http://proxy.example.org:3128")
    monkeypatch.setenv("NO_PROXY", "example.org")
    for _ in range(2):
        configure_libraries(tmp_path)
        assert os.environ["no_proxy"] == "example.org,127.0.0.1,localhost"
    assert all(urllib.request.proxy_bypass(host) for host in ("127.0.0.1:4200", "localhost:5000", "example.org"))
    assert not urllib.request.proxy_bypass("statmt.org")
    assert past_proxies({}, "http://box.example:4200/api")["no_proxy"] == "127.0.0.1,localhost,box.example"
