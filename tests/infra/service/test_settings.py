"""Settings of a service; only the programs that need its secrets receive them."""

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from dead_process import dead_process

from infra.errors import BadConfiguration
from infra.processes.identity import process_identity
from infra.servers import credentials
from infra.servers.credentials import Credentials
from infra.servers.environment import configure_libraries
from infra.servers.loopback import free_ports
from infra.servers.service_settings import Service, read, running_service
from infra.service import lifecycle, supervision
from infra.service.databases import Databases
from infra.service.programs import environment, environment_of, programs

PASSWORD = "planted-SECRET-42"
OUTER = {
    "REPRO_AUTH": f"reader:{PASSWORD}",
    "REPRO_DATABASE_URL": f"postgresql://repro:{PASSWORD}@db.example/repro",
    "PATH": "/usr/bin",
    "PREFECT_API_URL": "http://elsewhere/api",
    "REPRO_MIRRORS": "http://mirror .",
    "REPRO_CACHE": "keys",
}


def service_at(root: Path, host: str = "127.0.0.1") -> Service:
    service = Service(root, "", host, 4200, 5000, 1, 2, health_ports=free_ports(3))
    service.folder.mkdir(parents=True, exist_ok=True)
    return service


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "gpu-box.example"])
def test_a_service_beyond_loopback_needs_credentials(tmp_path: Path, host: str) -> None:
    with pytest.raises(BadConfiguration, match="REPRO_AUTH"):
        lifecycle.check(service_at(tmp_path, host), {})
    for near in ("127.0.0.1", "127.0.0.2", "::1", "localhost"):
        lifecycle.check(service_at(tmp_path, near), {})


def test_only_the_programs_that_need_a_secret_have_it_in_their_environment(tmp_path: Path) -> None:
    service = service_at(tmp_path, "0.0.0.0")
    service.write()
    outer = environment(service, OUTER)
    for program in programs(service):
        assert not any(PASSWORD in word for word in program.command)
        names = {name for name, value in environment_of(service, program, outer).items() if PASSWORD in value}
        database = {"prefect": {"PREFECT_SERVER_DATABASE_CONNECTION_URL"}, "mlflow": {"MLFLOW_BACKEND_STORE_URI"}}
        clients = {"PREFECT_API_AUTH_STRING", "MLFLOW_TRACKING_PASSWORD"}
        own = {"prefect": clients | {"PREFECT_SERVER_API_AUTH_STRING"}, "mlflow": {"REPRO_AUTH"}}
        assert names == database.get(program.name, set()) | own.get(program.name, clients | {"REPRO_AUTH"})
    assert PASSWORD not in supervision.configuration(service)
    assert PASSWORD not in (service.folder / "service.json").read_text()
    assert PASSWORD not in repr(Credentials("reader", PASSWORD)) + repr(Databases(OUTER["REPRO_DATABASE_URL"]))


def test_every_worker_sees_the_gpus_of_the_user(tmp_path: Path) -> None:
    service = service_at(tmp_path)
    outer = environment(service, OUTER | {"CUDA_VISIBLE_DEVICES": "4,5"})
    seen = [environment_of(service, program, outer)["CUDA_VISIBLE_DEVICES"] for program in programs(service)]
    assert seen == ["4,5"] * 5


@pytest.mark.parametrize(("host", "name"), [("::", "[::1]"), ("0.0.0.0", socket.gethostname())])
def test_links_name_a_host_of_the_servers_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, name: str
) -> None:
    def of_ipv4_alone(*address: object) -> list[object]:
        if socket.AF_INET6 in address:
            raise socket.gaierror
        return []

    monkeypatch.setattr(socket, "getaddrinfo", of_ipv4_alone)
    assert Service(tmp_path, host=host).mlflow == f"http://{name}:5000"


def test_a_host_that_is_no_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"port 4200 at 127\.0\.\.1 is not free"):
        Service(tmp_path, host="127.0..1").check_ports()


def test_settings_are_read_as_written_and_broken_ones_are_none(tmp_path: Path) -> None:
    service = service_at(tmp_path / "a root; of 100% #1")
    service.write()
    assert read(service.folder) == service
    file = service.folder / "service.json"
    for broken in ("", "[]", file.read_text().replace("host", "guest"), file.read_text()[:50]):
        file.write_text(broken)
        with pytest.raises(FileNotFoundError):
            read(service.folder)
        assert lifecycle.running(service.folder) is None
        assert running_service(service.place) is None


def test_a_service_runs_while_its_supervisor_lives(tmp_path: Path) -> None:
    service = replace(service_at(tmp_path), supervisor=process_identity())
    service.write()
    assert running_service(tmp_path) == service
    for other in (dead_process(), ""):
        replace(service, supervisor=other).write()
        assert running_service(tmp_path) is None


def test_a_notebook_forgets_the_address_of_a_service_that_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "")
    monkeypatch.setenv("PREFECT_HOME", f"{tmp_path / 'home'}")
    service = replace(service_at(tmp_path), supervisor=process_identity())
    service.write()
    configure_libraries(tmp_path)
    assert os.environ["PREFECT_API_URL"] == service.prefect
    replace(service, supervisor="").write()
    configure_libraries(tmp_path)
    assert "PREFECT_API_URL" not in os.environ
    monkeypatch.setenv("PREFECT_API_URL", "http://elsewhere/api")
    configure_libraries(tmp_path)
    assert os.environ["PREFECT_API_URL"] == "http://elsewhere/api"


def test_credentials_come_from_the_environment_or_a_private_file(tmp_path: Path) -> None:
    assert credentials.read_credentials({}) is None
    assert credentials.read_credentials({"REPRO_AUTH": ""}) is None
    found = credentials.read_credentials({"REPRO_AUTH": "a:b:c-long-enough"})
    assert found == Credentials("a", "b:c-long-enough")
    file = tmp_path / "auth"
    file.write_text(f"reader:{PASSWORD}\n")
    file.chmod(0o600)
    assert credentials.read_credentials({"REPRO_AUTH_FILE": str(file)}) == Credentials("reader", PASSWORD)
    file.chmod(0o640)
    with pytest.raises(BadConfiguration, match="0640"):
        credentials.read_credentials({"REPRO_AUTH_FILE": str(file)})
    with pytest.raises(BadConfiguration, match="cannot be read"):
        credentials.read_credentials({"REPRO_AUTH_FILE": str(tmp_path / "none")})


@pytest.mark.parametrize(
    "text", ["short:SECRET", ":no-user-SECRET-42", "no-password-SECRET", "two:lines-SECRET\nmore-of-it"]
)
def test_invalid_credentials_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(BadConfiguration) as error:
        credentials.read_credentials({"REPRO_AUTH": text})
    assert "SECRET" not in str(error.value)


def test_two_databases_derive_from_one_address() -> None:
    found = Databases("postgresql://u%40x:p%2Fw@db:6543/paper?sslmode=require")
    assert found.names == ("paper_prefect", "paper_mlflow")
    assert found.for_prefect == "postgresql+asyncpg://u%40x:p%2Fw@db:6543/paper_prefect?ssl=require"
    assert found.for_mlflow == "postgresql+psycopg2://u%40x:p%2Fw@db:6543/paper_mlflow?sslmode=require"
    assert found.place == "db:6543"


@pytest.mark.parametrize(
    "address", ["mysql://u:planted@h/db", "postgresql://u:planted@h", "postgresql://u:planted@h:x/db", "/tmp/planted"]
)
def test_the_message_about_an_invalid_database_address_hides_the_password(address: str) -> None:
    with pytest.raises(BadConfiguration) as error:
        Databases(address)
    assert "postgresql://user@host" in str(error.value)
    assert "u:planted" not in str(error.value)


def test_missing_credentials_are_reported_before_any_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "service").mkdir()
    Service(tmp_path, closed=True, supervisor=process_identity()).write()
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(BadConfiguration, match="REPRO_AUTH"):
        configure_libraries(tmp_path)
    monkeypatch.setenv("REPRO_AUTH", f"reader:{PASSWORD}")
    for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, "before")  # so that the variable is restored after the test
        monkeypatch.delenv(name)
    configure_libraries(tmp_path)
    assert os.environ["PREFECT_API_AUTH_STRING"] == f"reader:{PASSWORD}"
    assert os.environ["MLFLOW_TRACKING_PASSWORD"] == PASSWORD


def test_no_proxy_sees_the_requests_to_a_service_beyond_loopback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(tmp_path, host="box.example", supervisor=process_identity())
    assert environment(service, {"http_proxy": "http://proxy.example:3128"})["no_proxy"].endswith(",box.example")
    (tmp_path / "service").mkdir()
    service.write()
    for name in ("HOME", "no_proxy", "PREFECT_API_URL"):
        monkeypatch.setenv(name, f"{tmp_path}")
    monkeypatch.delenv("PREFECT_API_URL")
    configure_libraries(tmp_path)
    assert os.environ["no_proxy"].endswith(",127.0.0.1,localhost,box.example")


def test_the_foreground_leaves_a_running_service_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(tmp_path)
    monkeypatch.setattr(lifecycle, "running", lambda _: service)
    with pytest.raises(BadConfiguration, match="it is running already"):
        lifecycle.up(service, {}, print, foreground=True)
