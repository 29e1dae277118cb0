"""Installs this project and its libraries into a virtual environment: with uv if possible, otherwise with pip.

    python3 -I infra/install.py .venv          what the program needs
    python3 -I infra/install.py .venv --dev    what its tests need as well

``requirements.lock`` and ``requirements-dev.lock`` give versions and checksums. Neither contains torch: its builds for
CPUs and for CUDA share a version but have different checksums. constraints.txt pins only the version of torch.
"""

import argparse
import ast
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
UV_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}
"""Maps the settings of pip that choose the source of packages to uv's variables."""
PARTIAL = ("UV_FIND_LINKS", "UV_INDEX")
"""Sources that may lack some builds of a version: a lock made with them would lack checksums."""
LISTS = ("UV_FIND_LINKS",)
"""Variables that separate values by commas; pip separates them by spaces."""
UNUSED = (
    # Requirements of MLflow:
    *("docker", "gitpython", "gunicorn", "huey", "scikit-learn", "scipy", "skops"),
    # Requirements of Prefect, and of its libraries docket and griffe:
    *("griffecli", "python-json-logger", "semver", "typer"),
)
"""Libraries that other libraries require but never import in this program. Without them and their own requirements an
installation has 19 packages and 150 MB less."""


def uv_environment(listed: str, present: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for uv: ``present`` and the settings that ``pip config list`` printed (``listed``).

    uv does not read pip's settings. Variables of uv override pip's variables, and pip's variables override its files.
    """
    variables: dict[str, str] = {}
    for line in sorted(listed.splitlines(), key=lambda line: line.startswith(":env:")):
        name, equals, value = line.partition("=")
        if equals and (variable := UV_NAMES.get(name.rpartition(".")[2])):
            values = str(ast.literal_eval(value)).split()
            variables[variable] = (",".join if variable in LISTS else " ".join)(values)
    if "UV_INDEX" in variables:
        # Like pip, take the best version of all indexes. The lock's checksums identify the files.
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return {**variables, **present}


def install(folder: Path, *, dev: bool) -> None:
    """Make the environment in ``folder`` if there is none, and install into it. Raises CalledProcessError."""
    python = folder / "bin" / "python"
    start = time.monotonic()
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [f"{python}", "-m", "pip", "--disable-pip-version-check"]
    try:
        # Without --quiet uv lists all packages.
        uv = [_find_uv(folder, pip), "pip", "install", "--quiet", "--python", f"{python}"]
        _install_packages(uv, dev, _environment_of_uv(pip))
    except (OSError, subprocess.CalledProcessError):  # there is no uv, or it lacks a setting of pip
        print("uv cannot install; pip does, which takes longer", file=sys.stderr)
        _install_packages([*pip, "install"], dev, os.environ)
    print(f"installed in {time.monotonic() - start:.0f} s", file=sys.stderr)


def _install_packages(command: list[str], dev: bool, environment: Mapping[str, str]) -> None:
    requirements = PROJECT / ("requirements-dev.lock" if dev else "requirements.lock")
    pinned = ["--constraint", f"{PROJECT / 'constraints.txt'}"]
    for arguments in (
        ["--require-hashes", "--no-deps", "--requirement", f"{requirements}"],
        [*pinned, "torch", "setuptools"],
        ["--no-deps", "--no-build-isolation", "--editable", f"{PROJECT}"],
    ):
        subprocess.run([*command, *arguments], check=True, env=environment)


def lock(folder: Path) -> None:
    """Rewrite both locks with uv: constraints.txt's versions, all builds' checksums. Raises CalledProcessError."""
    pip = [f"{folder / 'bin' / 'python'}", "-m", "pip", "--disable-pip-version-check"]
    uv = _find_uv(folder, pip)
    locks: tuple[tuple[str, list[str], tuple[str, ...]], ...] = (
        ("requirements.lock", [], ("torch", *UNUSED)),
        ("requirements-dev.lock", ["--extra", "dev"], ("torch",)),
    )
    for name, extra, left_out in locks:
        overrides = "".join(f"{library} ; python_version < '3'\n" for library in left_out)
        options = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-annotate", "--no-header"]
        options += ["--constraint", "constraints.txt", "--override", "-", "--output-file", name, *extra]
        command = [uv, "pip", "compile", "--quiet", "pyproject.toml", *options]
        (PROJECT / name).unlink(missing_ok=True)  # uv would keep the checksums of the old file
        environment = {name: value for name, value in _environment_of_uv(pip).items() if name not in PARTIAL}
        subprocess.run(command, check=True, cwd=PROJECT, env=environment, input=overrides, text=True)


def _environment_of_uv(pip: list[str]) -> dict[str, str]:
    listed = subprocess.run([*pip, "config", "list"], check=True, capture_output=True, text=True).stdout
    return uv_environment(listed, os.environ)


def _find_uv(folder: Path, pip: list[str]) -> str:
    """Return the path of uv; pip installs uv into the environment if it is missing. Raises CalledProcessError."""
    own = folder / "bin" / "uv"
    if own.exists():
        return f"{own}"
    if anywhere := shutil.which("uv"):
        return anywhere
    subprocess.run([*pip, "install", "--quiet", "uv"], check=True)
    return f"{own}"


def main() -> None:
    """Install into the folder from the command line; a step that fails sets the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dev", action="store_true", help="install what the tests need as well")
    parser.add_argument("--lock", action="store_true", help="rewrite both locks with uv and install nothing")
    options = parser.parse_args()
    folder = options.folder.absolute()
    try:
        if options.lock:
            lock(folder)
        else:
            install(folder, dev=options.dev)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)


if __name__ == "__main__":
    main()
