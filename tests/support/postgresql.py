"""A real cluster of PostgreSQL for a test, on loopback, with a password; run by nobody in particular, as it wants."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from infra.servers.loopback import free_ports


def _program(name: str) -> str:
    places = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), Path("/usr/local/bin")]
    found = shutil.which(name) or next((str(p / name) for p in places if (p / name).exists()), "")
    if not found:
        pytest.skip("NOT RUN: PostgreSQL is missing; apt-get install postgresql")
    return found


class Cluster:
    """``address(user, password, name)`` names a database in it."""

    def __init__(self, password: str) -> None:
        initdb, self.pg_ctl = _program("initdb"), _program("pg_ctl")
        self.folder, (self.port,) = Path(tempfile.mkdtemp(prefix="postgresql-")), free_ports(1)
        folder = self.folder
        (folder / "password").write_text(password)
        # It refuses to run as root.
        self.user = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.getuid() == 0 else {}
        if self.user:
            for path in (folder, folder / "password"):
                shutil.chown(path, "nobody", "nogroup")
        data = [f"-D{folder / 'data'}"]
        self._run(
            initdb, *data, "-Ascram-sha-256", f"--pwfile={folder / 'password'}", "-Upostgres", "-EUTF8", "--no-sync"
        )
        settings = f"-p {self.port} -k {folder} -c listen_addresses=127.0.0.1 -F"
        self._run(self.pg_ctl, *data, "-o", settings, "-l", str(folder / "log"), "-w", "start")

    def address(self, user: str, password: str, name: str) -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{name}"

    def end(self) -> None:
        self._run(self.pg_ctl, f"-D{self.folder / 'data'}", "-m", "immediate", "-w", "stop")
        shutil.rmtree(self.folder)

    def _run(self, *words: str) -> None:
        # Its server keeps the output open: a pipe would never end.
        with (self.folder / "out").open("ab") as output:
            given = {
                "stdout": output,
                "stderr": output,
                "env": {"PATH": os.defpath},
                **self.user,
            }  # nothing of the test's
            subprocess.run(words, check=True, timeout=120, cwd="/", **given)  # type: ignore[call-overload]
