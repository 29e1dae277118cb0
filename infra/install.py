"""Installs this project and its libraries into a virtual environment: with uv where it can be had, otherwise with pip.

    python3 -I infra/install.py .venv          what the program needs
    python3 -I infra/install.py .venv --dev    what its tests need as well

Versions and checksums are those of ``requirements.lock`` and ``requirements-dev.lock``. torch is left out of both: its
builds for CPUs and for CUDA have one version and different checksums, so its version alone is pinned (constraints.txt).
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
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
}
"""The settings of pip that uv has too, under names of its own."""
LISTS = ("UV_FIND_LINKS",)
"""Variables that separate values by commas, where pip has spaces."""
UNUSED = (
    # What MLflow declares as needed:
    *("docker", "gitpython", "gunicorn", "huey", "scikit-learn", "scipy", "skops"),
    # What Prefect, its docket and its griffe do:
    *("griffecli", "python-json-logger", "semver", "typer"),
)
"""Libraries that other libraries declare as needed and never import in this program. Without them, and without what
only they need, an installation has 19 packages and 150 MB less."""


def uv_environment(listed: str, present: Mapping[str, str]) -> dict[str, str]:
    """The environment for uv: ``present``, and what ``pip config list`` printed, which uv does not read.

    A variable of uv that is set counts more than pip's settings, and a variable of pip more than its files.
    """
    variables: dict[str, str] = {}
    for line in sorted(listed.splitlines(), key=lambda line: line.startswith(":env:")):
        name, equals, value = line.partition("=")
        if equals and (variable := UV_NAMES.get(name.rpartition(".")[2])):
            values = str(ast.literal_eval(value)).split()
            variables[variable] = (",".join if variable in LISTS else " ".join)(values)
    if "UV_INDEX" in variables:
        # As pip does: the best version of all indexes. The checksums of the lock say which files are meant.
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return {**variables, **present}


def install(folder: Path, *, dev: bool, with_uv: bool = True) -> None:
    """Make the environment in ``folder`` if there is none, and install into it. Raises CalledProcessError."""
    python = folder / "bin" / "python"
    began = time.monotonic()
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [f"{python}", "-m", "pip", "--disable-pip-version-check"]
    uv = _find_uv(folder, pip) if with_uv else ""
    environment = _environment_of_uv(pip) if uv else dict(os.environ)
    if with_uv and not uv:
        print("uv cannot be had; pip installs, which takes longer", file=sys.stderr)
    # Otherwise uv lists every package; errors are printed all the same.
    command = [uv, "pip", "install", "--quiet", "--python", f"{python}"] if uv else [*pip, "install"]
    requirements = PROJECT / ("requirements-dev.lock" if dev else "requirements.lock")
    pinned = ["--constraint", f"{PROJECT / 'constraints.txt'}"]
    for arguments in (
        ["--require-hashes", "--no-deps", "--requirement", f"{requirements}"],
        [*pinned, "torch", "setuptools"],
        ["--no-deps", "--no-build-isolation", "--editable", f"{PROJECT}"],
    ):
        subprocess.run([*command, *arguments], check=True, env=environment)
    print(f"installed with {'uv' if uv else 'pip'} in {time.monotonic() - began:.0f} s", file=sys.stderr)


def lock(folder: Path) -> None:
    """Rewrite both locks with uv and the versions of constraints.txt. Raises CalledProcessError."""
    pip = [f"{folder / 'bin' / 'python'}", "-m", "pip", "--disable-pip-version-check"]
    uv = _find_uv(folder, pip)
    if not uv:
        sys.exit("only uv writes the locks, and it cannot be installed here; try pip install uv")
    locks: tuple[tuple[str, list[str], tuple[str, ...]], ...] = (
        ("requirements.lock", [], ("torch", *UNUSED)),
        ("requirements-dev.lock", ["--extra", "dev"], ("torch",)),
    )
    for name, extra, left_out in locks:
        overrides = "".join(f"{library} ; python_version < '3'\n" for library in left_out)
        options = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-annotate", "--no-header"]
        options += ["--constraint", "constraints.txt", "--override", "-", "--output-file", name, *extra]
        command = [uv, "pip", "compile", "--quiet", "pyproject.toml", *options]
        environment = _environment_of_uv(pip)
        subprocess.run(command, check=True, cwd=PROJECT, env=environment, input=overrides, text=True)


def _environment_of_uv(pip: list[str]) -> dict[str, str]:
    listed = subprocess.run([*pip, "config", "list"], check=True, capture_output=True, text=True).stdout
    return uv_environment(listed, os.environ)


def _find_uv(folder: Path, pip: list[str]) -> str:
    """The path of uv, which is installed into the environment if there is none; "" if that fails."""
    own = folder / "bin" / "uv"
    if not own.exists() and (found := shutil.which("uv")):
        return found
    if not own.exists():
        subprocess.run([*pip, "install", "--quiet", "uv"], check=False)
    return f"{own}" if own.exists() else ""


def main() -> None:
    """Install into the folder that the command line names; the exit code is that of the step that failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dev", action="store_true", help="install what the tests need as well")
    parser.add_argument("--pip", action="store_true", help="use pip even if uv can be had")
    parser.add_argument("--lock", action="store_true", help="rewrite both locks and install nothing")
    options = parser.parse_args()
    try:
        if options.lock:
            lock(options.folder.absolute())
        else:
            _install_by_any(options.folder.absolute(), dev=options.dev, with_uv=not options.pip)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)


def _install_by_any(folder: Path, *, dev: bool, with_uv: bool) -> None:
    """Install with uv, and with pip if uv fails: pip has settings that uv lacks. Raises CalledProcessError."""
    try:
        install(folder, dev=dev, with_uv=with_uv)
    except subprocess.CalledProcessError as error:
        if Path(error.cmd[0]).name != "uv":
            raise
        print("uv failed; pip installs, which takes longer", file=sys.stderr)
        install(folder, dev=dev, with_uv=False)


if __name__ == "__main__":
    main()
