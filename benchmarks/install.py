"""What an installation costs: with uv and with pip, cold and warm caches, runtime and development.

    python benchmarks/install.py            four installations with uv
    python benchmarks/install.py --pip      and four with pip

Everything goes to a temporary folder, the caches too. CPU seconds count all processes.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

INSTALL = Path(__file__).resolve().parents[1] / "infra" / "install.py"


def measure(environment: Path, caches: Path, options: list[str]) -> str:
    """Install into ``environment``; a row of the table: wall and CPU seconds, packages, megabytes."""
    own = {"UV_CACHE_DIR": f"{caches}/uv", "PIP_CACHE_DIR": f"{caches}/pip"}
    command = [sys.executable, "-I", f"{INSTALL}", f"{environment}", *options]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    subprocess.run(command, check=True, capture_output=True, env=os.environ | own)
    wall = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    packages = len([*environment.glob("lib/python*/site-packages/*.dist-info")])
    size = sum(path.lstat().st_size for path in environment.rglob("*") if path.is_file() and not path.is_symlink())
    return f"{wall:8.1f} {cpu:8.1f} {packages:9} {size / 1e6:9.0f}"


def main() -> None:
    """Print a row for each installation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pip", action="store_true", help="measure pip as well")
    programs = ["uv", "pip"] if parser.parse_args().pip else ["uv"]
    print(f"{'installation':24} {'wall, s':>8} {'CPU, s':>8} {'packages':>9} {'MB':>9}")
    for program in programs:
        for kind in ("runtime", "development"):
            with tempfile.TemporaryDirectory() as folder:
                options = ["--pip"] * (program == "pip") + ["--dev"] * (kind == "development")
                for caches in ("cold", "warm"):
                    row = measure(Path(folder, caches), Path(folder, "caches"), options)
                    print(f"{f'{program}, {kind}, {caches}':24} {row}", flush=True)


if __name__ == "__main__":
    main()
