"""``repro doctor``: a verdict for each check, and advice where one is not ok."""

import json
import os
import re
import threading
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flows.commands.doctor import doctor
from flows.inspection import doctor as checks
from flows.inspection.doctor import GIB, Check, examine
from infra.errors import Fault
from infra.processes.identity import process_identity
from infra.servers.service_settings import Service
from infra.site import Site
from infra.store.s3_client import Bucket

if TYPE_CHECKING:
    from s3_server import Server

Usage = namedtuple("Usage", "total used free")
ALL = ["python", "torch", "cores", "memory", "disk", "prefect", "mlflow", "mirrors"]


@contextmanager
def server() -> Iterator[str]:
    answering = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)  # 501 is an answer all the same
    threading.Thread(target=answering.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{answering.server_port}"
    answering.shutdown()
    answering.server_close()


def found(name: str) -> Check:
    return next(check for check in examine(Site.named()) if check.name == name)


def test_a_device_that_torch_does_not_have_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(checks, "GPU", tmp_path / "none")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setenv("REPRO_DEVICE", "cuda")
    assert (found("torch").verdict, "needs a GPU" in found("torch").advice) == ("failure", True)


def test_each_check_is_a_line_and_nothing_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PREFECT_HOME", raising=False)
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda _: Usage(99 * GIB, 0, 99 * GIB))
    monkeypatch.setattr(checks, "LEAST_MEMORY", 0)  # this machine has other work
    doctor()
    printed = capsys.readouterr().out
    assert [line.split()[1] for line in printed.splitlines()] == ALL
    doctor(as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert said["ok"]
    assert [check["name"] for check in said["checks"]] == ALL
    assert not list(tmp_path.iterdir())


def test_a_failure_is_an_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda _: Usage(GIB, GIB, 0))
    monkeypatch.setattr(checks, "LEAST_MEMORY", 0)
    with pytest.raises(Fault, match="1 of 8 checks failed: disk"):
        doctor(as_json=True)
    said = json.loads(capsys.readouterr().out)
    (disk,) = (check for check in said["checks"] if check["name"] == "disk")
    assert (said["ok"], disk["verdict"]) == (False, "failure")
    assert "repro gc" in disk["advice"]


def test_limits_of_a_container_and_the_load_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "CGROUP", tmp_path)
    monkeypatch.setenv("REPRO_THREADS", "2")
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    for name, text in (("cpu.max", "100000 100000"), ("memory.max", f"{3 * GIB}"), ("memory.current", f"{GIB}")):
        (tmp_path / name).write_text(f"{text}\n")
    cores, memory = found("cores"), found("memory")
    assert (cores.verdict, memory.verdict) == ("warning", "warning")
    assert "this container may use 1.0" in cores.found
    assert "set REPRO_THREADS=1" in cores.advice
    assert memory.found == "2.0 of 3.0 GiB free"
    (tmp_path / "memory.current").write_text(f"{3 * GIB}\n")
    assert found("memory").verdict == "failure"
    (tmp_path / "memory.stat").write_text(f"anon {GIB}\ninactive_file {2 * GIB}\nactive_file 0\n")
    assert found("memory").found == "2.0 of 3.0 GiB free", "the kernel drops such files"
    (tmp_path / "cpu.max").unlink()
    monkeypatch.setenv("REPRO_THREADS", "1")
    for load, verdict in ((0.0, "ok"), (99.0 * (os.cpu_count() or 1), "warning")):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert found("cores").verdict == verdict


def test_servers_and_mirrors_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as prefect, server() as gone:
        monkeypatch.setenv("PREFECT_API_URL", f"{prefect}/api")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", prefect.replace("http://", "http://user:a secret@"))
        monkeypatch.setenv("REPRO_MIRRORS", f"{tmp_path} {tmp_path / 'nowhere'} {prefect}")
        verdicts = [(check.name, check.verdict) for check in examine(Site.named())][5:]
        assert verdicts == [
            ("prefect", "ok"),
            ("mlflow", "ok"),
            ("mirror", "ok"),
            ("mirror", "failure"),
            ("mirror", "ok"),
        ]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", gone.replace("http://", "http://user:a secret@"))
    check = found("mlflow")
    assert (check.verdict, check.advice) == ("failure", "start it, or unset MLFLOW_TRACKING_URI")
    assert "secret" not in check.found


def test_a_closed_service_needs_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_ROOT", f"{tmp_path}")
    service = Service(tmp_path, closed=True, supervisor=process_identity())
    service.folder.mkdir()
    with server() as address:
        _, _, port = address.rpartition(":")
        replace(service, prefect_port=int(port)).write()
        assert found("credentials").verdict == "failure"
        monkeypatch.setenv("REPRO_AUTH", "reader:of twelve characters")
        assert found("credentials").verdict == "ok"


def test_a_bucket_is_tried_and_its_credentials(s3: "Server", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_ROOT", f"s3://{s3.bucket}/prefix")
    monkeypatch.setenv("REPRO_CACHE", f"{tmp_path}")
    assert found("bucket").verdict == "ok"
    s3.inject_faults(status=403, code="AccessDenied", times=99, match="PUT")
    assert (found("bucket").verdict, "cannot be written" in found("bucket").found) == ("failure", True)
    s3.inject_faults(status=403, code="QuotaExceeded", times=99, match="PUT")
    assert "no space left" in found("bucket").found
    s3.inject_faults()
    with monkeypatch.context() as patch:
        patch.setattr(Bucket, "clock_offset", lambda _: 2000.0)
        assert "2000 s behind" in found("bucket").found
    with monkeypatch.context() as patch:
        patch.setattr(Bucket, "put_if_absent", Bucket.put)
        assert "If-None-Match" in found("bucket").found
    assert not Bucket(f"s3://{s3.bucket}/prefix").list(""), "nothing is left there"
    monkeypatch.setenv("REPRO_ROOT", "s3://there-is-none/prefix")
    missing = found("bucket")
    assert "there is no bucket 'there-is-none'" in missing.found
    section, page = re.fullmatch(r"see (.*) in (docs/\S+)", missing.advice).groups()  # type: ignore[union-attr]
    assert f"\n## {section}\n" in (Path(__file__).parents[3] / page).read_text()


def test_a_damaged_database_and_a_root_that_is_a_file_are_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRO_ROOT", f"{tmp_path}")
    (tmp_path / "mlflow.db").write_bytes(b"SQLite format 3\0" + b"damaged" * 1000)
    check = found("mlflow")
    assert (check.verdict, bool(check.advice)) == ("failure", True)
    monkeypatch.setenv("REPRO_ROOT", f"{tmp_path / 'mlflow.db'}")
    assert found("disk").verdict == "failure"
