"""An installed wheel works like a checkout, and no install hint names another project's package."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
import yaml
from test_architecture import NODE

from flows import __version__
from infra.extras import EXTRAS

TOP = Path(__file__).resolve().parents[1]
PACKAGES = ("flows", "tasks", "model", "infra")
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, f'build_{sys.argv[1]}')(sys.argv[2])"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with a wheel of this tree's sdist, and with this environment's libraries; its packages."""
    base = tmp_path_factory.mktemp("wheel")
    source, environment = base / "source", base / "environment"
    for package in PACKAGES:
        # Links are kept as they are: in a built wheel they must be files.
        shutil.copytree(TOP / package, source / package, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "prefect.yaml"):
        shutil.copy(TOP / name, source)
    called = f"{PROJECT['name'].replace('-', '_')}-{__version__}"
    done_in(source, sys.executable, "-c", BUILD, "sdist", f"{base}")
    shutil.unpack_archive(base / f"{called}.tar.gz", base, filter="data")
    done_in(base / called, sys.executable, "-c", BUILD, "wheel", f"{base}")
    done_in(base, sys.executable, "-m", "venv", "--without-pip", f"{environment}")
    (wheel,) = base.glob(f"{called}-*.whl")
    pip = [sys.executable, "-m", "pip", "--python", f"{environment}/bin/python"]
    done_in(base, *pip, "install", "--quiet", "--no-index", "--no-deps", f"{wheel}")
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    return site


def done_in(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def repro(site: Path, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """The command as the wheel installs it, started in ``folder``."""
    others = {"PREFECT_API_URL", "PREFECT_PROFILE"}
    clean = {name: value for name, value in os.environ.items() if name not in others}
    own = {"PREFECT_HOME": f"{folder}/prefect", "REPRO_ROOT": f"{folder}/root"}
    command = [f"{site.parents[2]}/bin/repro", *words]
    return subprocess.run(command, cwd=folder, env=clean | own, capture_output=True, text=True)


def test_a_wheel_holds_every_file_of_the_packages(installed: Path) -> None:
    found = [path for package in PACKAGES for path in (TOP / package).rglob("*") if path.is_file()]
    names = {f"{path.relative_to(TOP)}" for path in found if "__pycache__" not in path.parts}
    needed = {name for name in names if not name.startswith("infra/deploy/")}
    assert {"flows/prefect.yaml", "flows/web/server.py"} < needed
    assert not {name for name in needed if not (installed / name).is_file()}
    assert (installed / "flows" / "prefect.yaml").read_text() == (TOP / "prefect.yaml").read_text()


def test_deploy_works_from_a_wheel(installed: Path, tmp_path: Path) -> None:
    """As far as it goes without a server: the deployments are found."""
    done = repro(installed, tmp_path, "deploy")
    assert done.returncode == 2
    assert "no Prefect server is configured" in done.stderr


def test_the_help_and_a_plan_work_from_a_wheel(installed: Path, tmp_path: Path) -> None:
    for words, said in ((["--help"], "translate"), (["plan", "demo"], "learn_bpe")):
        done = repro(installed, tmp_path, *words)
        assert done.returncode == 0, done.stderr
        assert said in done.stdout


def test_the_version_is_the_packages(installed: Path, tmp_path: Path) -> None:
    done = repro(installed, tmp_path, "--version")
    assert (done.returncode, done.stdout) == (0, f"{__version__}\n")
    (metadata,) = installed.glob("attention_repro-*.dist-info/METADATA")
    assert re.search(r"^Version: (.*)$", metadata.read_text(), re.MULTILINE)[1] == __version__  # type: ignore[index]
    assert yaml.safe_load((TOP / "CITATION.cff").read_text())["version"] == __version__


def test_hints_name_extras_of_this_project_and_no_other_package() -> None:
    assert PROJECT["name"] != "repro", "the index has a package of that name, which is not this one"
    assert PROJECT["scripts"] == {"repro": "flows.cli:main"}
    extras = PROJECT["optional-dependencies"]
    hinted = set()
    pages = [TOP / "README.md", *TOP.glob("docs/*.md")]
    for path in [*pages, *(each for name in PACKAGES for each in (TOP / name).rglob("*.py"))]:
        text = path.read_text()
        assert not re.search(r"\brepro\[", text), path
        hinted |= set(re.findall(r"pip install -e '\.\[([\w{}-]+)\]'", text))
    assert hinted - {"{to}"} <= set(extras)
    assert {"ctranslate2", "postgresql"} <= hinted
    assert set(EXTRAS.values()) < set(extras)


def test_a_node_needs_the_libraries_of_model_alone() -> None:
    node = tomllib.loads((TOP / "pyproject.toml").read_text())["dependency-groups"]["node"]
    names = {re.split(r"[<>=!~\[]", each)[0] for each in node}
    assert names == NODE
    assert set(node) <= set(PROJECT["dependencies"]), "with the same bounds"
