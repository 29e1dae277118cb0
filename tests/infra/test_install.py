"""The installation: pip's settings reach uv, and the locks hold what the project declares."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from infra import install
from infra.install import uv_environment

TOP = Path(__file__).resolve().parents[2]
LOCKS = ("requirements.lock", "requirements-dev.lock")
ENTRY = re.compile(r"^([\w.-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", re.MULTILINE)


def name_of(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[<>=!~\[;]", requirement)[0]).lower()


def versions(text: str) -> dict[str, str]:
    return {name_of(name): version for name, version in ENTRY.findall(text)}


def test_uv_reads_the_settings_of_pip() -> None:
    listed = """\
global.index-url='https://mirror.example/simple'
:env:.find-links='/media/wheels /media/more'
global.extra-index-url='file:///a/simple file:///b/simple'
global.find-links='/elsewhere'
global.cert='/etc/ssl/bundle.pem'
install.no-compile='1'
"""
    assert uv_environment(listed, {"PATH": "/bin"}) == {
        "PATH": "/bin",
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_INDEX": "file:///a/simple file:///b/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": "/media/wheels,/media/more",
        "SSL_CERT_FILE": "/etc/ssl/bundle.pem",
    }


def test_a_lock_is_made_of_the_whole_index_and_nothing_older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds for one Python in a folder or in an old lock would hide the checksums of those for another."""
    for name in LOCKS:
        (tmp_path / name).write_text("old")
    found = {"UV_DEFAULT_INDEX": "whole", "UV_INDEX": "part", "UV_FIND_LINKS": "part"}
    given = []

    def run(command: list[str], **options: Any) -> None:
        given.append(options["env"])
        assert not (tmp_path / command[command.index("--output-file") + 1]).exists()

    monkeypatch.setattr(install, "PROJECT", tmp_path)
    monkeypatch.setattr(install, "_find_uv", lambda *_: "uv")
    monkeypatch.setattr(install, "_environment_of_uv", lambda _: found)
    monkeypatch.setattr(install.subprocess, "run", run)
    install.lock(tmp_path)
    assert given == [{"UV_DEFAULT_INDEX": "whole"}] * len(LOCKS)


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_a_checksum_for_each_package_and_no_address(lock: str) -> None:
    text = (TOP / lock).read_text()
    entries = re.split(r"\n(?=\S)", text.strip())
    assert len(entries) > 150
    assert not [entry for entry in entries if "--hash=sha256:" not in entry or not ENTRY.match(entry)]
    assert not re.search(r"://|--index|--find-links|/simple", text)
    # Its builds have one version and different checksums; those for CUDA need gigabytes.
    assert not [name for name in versions(text) if name in ("torch", "triton") or name.startswith("nvidia-")]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_the_versions_of_the_constraints(lock: str) -> None:
    pinned, locked = versions((TOP / "constraints.txt").read_text()), versions((TOP / lock).read_text())
    assert not {name: version for name, version in locked.items() if pinned.get(name, version) != version}, "make lock"


def test_the_locks_hold_every_declared_library() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    runtime, development = (versions((TOP / lock).read_text()) for lock in LOCKS)
    needed = {name_of(each) for each in project["dependencies"]} - {"torch"}
    assert needed <= runtime.keys(), "make lock"
    others = {name_of(each) for extra in extras.values() for each in extra} - {"attention-repro"}
    assert needed | others <= development.keys(), "make lock"
    assert runtime.items() <= development.items()
