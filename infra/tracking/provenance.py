"""The code, machine and libraries that made an artifact; recorded in every manifest."""

import getpass
import platform
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

LIBRARIES = ("torch", "polars", "pyarrow", "tokenizers", "sacrebleu", "sacremoses", "mlflow", "prefect")


@cache
def commit() -> str:
    """Return the commit of this code, with ``+`` if the working tree differs from it; empty outside a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():  # an installed release: git would find a repository around its environment
        return ""
    try:
        git = ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
        return subprocess.run(git, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def short_commit(commit: str) -> str:
    """Return the first ten digits, with the ``+`` of a changed working tree."""
    return commit[:10] + ("+" if commit.endswith("+") else "")


def user() -> str:
    """Return the user's name; ``unknown`` if the system has none (containers)."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def provenance() -> dict[str, str]:
    """Return time, commit, machine and library versions."""
    made = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": f"{platform.machine()}, {platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    for library in LIBRARIES:
        with suppress(PackageNotFoundError):
            made[library] = version(library)
    return made
