"""Check the container and systemd files without an engine: the tools' own parsers, paths, variables, commands."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cyclopts import App

from flows.cli import application

REPOSITORY = Path(__file__).resolve().parents[3]
DEPLOY = REPOSITORY / "infra" / "deploy"
DOCKERFILES = sorted(DEPLOY.glob("*.Dockerfile"))
UNITS = sorted(DEPLOY.glob("*.service"))
COMPOSE = DEPLOY / "compose.yaml"
NEEDED = {"REPRO_AUTH": "reader:long-enough-a-word", "POSTGRES_PASSWORD": "x", "STORE_USER": "u", "STORE_PASSWORD": "p"}
BUILTIN = {"ADD", "ARG", "CMD", "COPY", "ENV", "EXPOSE", "FROM", "RUN", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}
PREFECT = """
import json, sys
from prefect.cli.worker import worker_app
for words in json.loads(sys.argv[1]):
    worker_app.parse_args(words, exit_on_error=False)
"""


def instructions(file: Path) -> Iterator[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", "", re.sub(r"^\s*#.*\n", "", file.read_text(), flags=re.MULTILINE))
    for line in filter(None, text.splitlines()):
        word, _, rest = line.partition(" ")
        yield word, rest


def commands() -> list[list[str]]:
    """Every command of repro or Prefect that a container or a unit runs."""
    services = yaml.safe_load(COMPOSE.read_text())["services"].values()
    found = [each["command"] for each in services if "command" in each]
    found += [each["healthcheck"]["test"][1:] for each in services if "healthcheck" in each]
    found += [json.loads(rest) for file in DOCKERFILES for word, rest in instructions(file) if word == "CMD"]
    for unit in UNITS:
        words = shlex.split(re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)[0])
        found.append([Path(words[0]).name, *words[1:]])
    return [words for words in found if words[0] in ("repro", "prefect")]


def test_every_command_parses() -> None:
    found = commands()
    parser: App = application()
    for words in found:
        if words[0] == "repro":
            parser.parse_args(words[1:], exit_on_error=False, print_error=False)
    workers = [words[2:] for words in found if words[:2] == ["prefect", "worker"]]
    assert len(workers) == sum(words[0] == "prefect" for words in found)
    done = subprocess.run([sys.executable, "-c", PREFECT, json.dumps(workers)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_every_path_of_an_image_exists_in_the_build_context(file: Path) -> None:
    found = list(instructions(file))
    assert {word for word, _ in found} <= BUILTIN
    assert found[0][0] == "FROM"
    allowed = {line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [path for word, rest in found if word == "COPY" for path in rest.split()[:-1]]
    for path in copied:
        assert (REPOSITORY / path).exists(), path
        assert path in allowed, f"{path} is not in the context"
    assert set(copied) == allowed
    pyproject = (REPOSITORY / "pyproject.toml").read_text()
    for word, rest in found:
        if word == "RUN":
            assert not subprocess.run(["sh", "-n", "-c", rest]).returncode
            assert all(f"\n{extra} = " in pyproject for extra in re.findall(r'"\.\[(\w+)\]"', rest))
    names = [word for word, _ in found]
    assert names.index("USER") < names.index("CMD"), "the container must not run as root"


def test_docker_compose_parses_the_file() -> None:
    compose = shutil.which("docker-compose")
    if not compose:
        pytest.skip("NOT RUN: docker-compose is missing; apt-get install docker-compose")
    words = [compose, "-f", str(COMPOSE), "--profile", "gpu", "config"]
    clean = {name: value for name, value in os.environ.items() if name not in NEEDED}
    done = subprocess.run(words, env=clean | NEEDED, capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
    made = yaml.safe_load(done.stdout)["services"]["servers"]["environment"]
    assert made["REPRO_DATABASE_URL"] == "postgresql://repro:x@database:5432/repro"
    done = subprocess.run(words, env=clean, capture_output=True, text=True, cwd="/")
    assert done.returncode != 0
    assert ".env" in done.stderr
    rules = re.findall(r"\$\{(\w+)([^}]*)\}", COMPOSE.read_text())
    assert {name for name, rule in rules if not rule.startswith(":-")} == NEEDED.keys()
    assert all(re.match(r":\?.*in the file \.env$", rule) for name, rule in rules if name in NEEDED)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_the_units(unit: Path, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if not analyze:
        pytest.skip("NOT RUN: systemd-analyze is missing")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name in ("repro", "prefect"):
        program = tmp_path / ".venv" / "bin" / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/repro", str(tmp_path)))
    done = subprocess.run([analyze, "verify", str(copy)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
