"""Sites from the environment, and whether the user configured a Prefect server."""

from dataclasses import replace
from pathlib import Path

import pytest

from infra.errors import BadConfiguration
from infra.servers.environment import server_configured
from infra.servers.service_settings import Service
from infra.site import Site


def test_the_environment_completes_a_site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REPRO_ROOT", str(tmp_path))
    monkeypatch.setenv("REPRO_MIRRORS", "/here http://there")
    monkeypatch.setenv("REPRO_RANKS", "2")
    monkeypatch.setenv("REPRO_THREADS", "3")
    monkeypatch.setenv("REPRO_RANK_TIMEOUT", "9")
    monkeypatch.setenv("REPRO_COMPILE", "always")
    monkeypatch.setenv("REPRO_PACKED_ATTENTION", "own")
    monkeypatch.setenv("REPRO_DEVICE", "cuda")
    site = Site.named()
    assert (site.root, site.mirrors, site.ranks, site.threads_each) == (tmp_path, ("/here", "http://there"), 2, 3)
    assert (site.rank_timeout_seconds, site.compile, site.packed_attention) == (9, "always", "own")
    assert (site.device, site.gpus) == ("cuda", ())
    assert site.tracking == f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("REPRO_LAUNCHER", "slurm")
    monkeypatch.setenv("REPRO_NODES", "2")
    assert Site.named().place == "by slurm, 2 ranks on 2 nodes"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert Site.named("gpu").tracking == "http://127.0.0.1:5000"


def test_versions_on_postgresql_are_not_looked_for_in_a_file(tmp_path: Path) -> None:
    service = Service(tmp_path, postgresql=True)
    service.folder.mkdir()
    service.write()
    with pytest.raises(BadConfiguration, match="repro up"):
        _ = Site(root=tmp_path).registry
    assert Site(root=tmp_path, tracking_uri="http://there").registry == "http://there"
    replace(service, postgresql=False).write()
    assert Site(root=tmp_path).registry.endswith("mlflow.db")


def test_the_root_is_the_nearest_one_above(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("REPRO_ROOT", raising=False)
    (tmp_path / "a/b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a/b")
    assert Site.named().root == Path(".repro")
    (tmp_path / ".repro").mkdir()
    assert Site.named().root == tmp_path / ".repro"
    (tmp_path / "a/b/.repro").mkdir()
    assert Site.named().root == Path(".repro")
    monkeypatch.setenv("REPRO_ROOT", "~/mine")
    assert Site.named().root == Path.home() / "mine"


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        ("REPRO_RANKS", "two", "REPRO_RANKS"),
        ("REPRO_RANKS", "²", "REPRO_RANKS"),
        ("REPRO_RANKS", "0", "ranks"),
        ("REPRO_THREADS", "-1", "REPRO_THREADS"),
        ("REPRO_RANK_TIMEOUT", "0", "rank_timeout_seconds"),
        ("REPRO_LAUNCHER", "slrum", "slurm"),
        ("REPRO_NODES", "0", "nodes"),
        ("REPRO_NODES", "2", "nodes"),
        ("REPRO_PACKED_ATTENTION", "flash", "REPRO_PACKED_ATTENTION"),
        ("REPRO_COMPILE", "yes", "REPRO_COMPILE"),
        ("REPRO_DEVICE", "tpu", "REPRO_DEVICE"),
        ("REPRO_ROOT", "some*", "REPRO_ROOT is some.*allowed is a path without"),
        ("REPRO_ROOT", "some?", "REPRO_ROOT is some.*allowed is a path without"),
        ("REPRO_ROOT", "[some]/root", "REPRO_ROOT is .some.*allowed is a path without"),
    ],
)
def test_invalid_variables_are_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, named: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(BadConfiguration, match=named):
        Site.named()


PROFILES = """
active = "{active}"
[profiles.away]
PREFECT_API_URL = "http://127.0.0.1:4200/api"
[profiles.ephemeral]
PREFECT_SERVER_ALLOW_EPHEMERAL_MODE = "true"
"""


def test_only_the_active_profile_configures_a_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PREFECT_PROFILE", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    assert not server_configured()
    for active in ("away", "ephemeral"):
        (tmp_path / "profiles.toml").write_text(PROFILES.format(active=active))
        assert server_configured() == (active == "away")
    (tmp_path / "profiles.toml").write_text("not = [toml")
    assert not server_configured()
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:4200/api")
    assert server_configured()


def test_a_server_on_loopback_is_not_shared_between_machines() -> None:
    bucket = "s3://bucket/root"
    for address in ("", "http://127.0.0.1:5000", "http://localhost:5000", "http://[::1]:5000"):
        assert not Site(remote=bucket, tracking_uri=address).shares_tracking
        assert Site(tracking_uri=address).shares_tracking, "a local store has no other users"
    for address in ("http://box.example:5000", "http://10.0.0.7:5000", "sqlite:////shared/mlflow.db", "databricks"):
        assert Site(remote=bucket, tracking_uri=address).shares_tracking
