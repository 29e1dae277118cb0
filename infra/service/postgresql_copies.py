"""Copies of a service's PostgreSQL databases, made and put back by PostgreSQL's own programs.

``pg_dump`` copies a database as it is at one moment, also while servers write to it.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from infra.errors import BadConfiguration, BadData
from infra.servers.database_copies import default_folder, new_folder, read_about, write_about
from infra.service.databases import Databases

COPIES = ("prefect.dump", "mlflow.dump")
"""The copies of the two databases, in the order of ``Databases.names``."""
WAIT = "SET lock_timeout = '60s'"
EMPTY = """DO $$ DECLARE found record; BEGIN
FOR found IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
EXECUTE format('DROP TABLE public.%I CASCADE', found.tablename); END LOOP;
FOR found IN SELECT typname FROM pg_type WHERE typnamespace = 'public'::regnamespace AND typtype = 'e' LOOP
EXECUTE format('DROP TYPE public.%I CASCADE', found.typname); END LOOP; END $$"""
"""Removes what a backup of another version would leave behind."""


def back_up(databases: Databases, root: Path, folder: Path) -> list[Path]:
    """Copy both databases into ``folder``; return the copies.

    Raises BadConfiguration if PostgreSQL's programs are missing or refuse, or the folder has a backup already.
    """
    program("pg_dump")
    new_folder(folder)
    copies = [folder / name for name in COPIES]
    for name, copy in zip(databases.names, copies, strict=True):
        words = ("--format=custom", "--no-owner", "--no-privileges", "--no-comments", f"--file={copy}")
        _run(databases, name, "pg_dump", *words)
    write_about(root, folder, copies)
    return copies


def restore(databases: Databases, root: Path, folder: Path, say: Callable[[str], None]) -> list[str]:
    """Put both databases of a backup back, after a backup of the present ones; return their names.

    The caller makes sure that no server runs. Raises BadConfiguration for a folder without a whole backup or a
    database in use, BadData for a damaged copy, before anything changes.
    """
    if set(read_about(root, folder)) != set(COPIES):
        raise BadConfiguration(f"{folder} is a backup of SQLite databases; restore it without REPRO_DATABASE_URL")
    program("psql")
    for copy in COPIES:
        listed = subprocess.run([program("pg_restore"), "--list", folder / copy], capture_output=True, text=True)
        if listed.returncode:
            raise BadData(f"{folder / copy} is damaged ({_last(listed.stderr)}); use another backup")
    if databases.make() != databases.names:
        before = default_folder(root)
        back_up(databases, root, before)
        say(f"the present databases are kept in {before}")
    put_back(databases, folder)
    return list(databases.names)


def put_back(databases: Databases, folder: Path) -> None:
    """Replace the content of both databases by that of a whole backup, each in one transaction."""
    for name, copy in zip(databases.names, COPIES, strict=True):
        with tempfile.TemporaryDirectory(prefix="repro-restore-", dir=folder) as place:
            words, script = ("--clean", "--if-exists", "--no-owner", "--no-privileges"), Path(place) / "restore.sql"
            subprocess.run([program("pg_restore"), *words, f"--file={script}", folder / copy], check=True)
            given = ("--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1")
            _run(databases, name, "psql", *given, f"--command={WAIT}", f"--command={EMPTY}", f"--file={script}")


def program(name: str) -> str:
    """The path of one of PostgreSQL's programs; raises BadConfiguration with what to do if it is missing."""
    found = shutil.which(name)
    if not found:
        raise BadConfiguration(
            f"{name} is missing, which copies PostgreSQL databases: install PostgreSQL's client programs, of the "
            "server's version or later (apt-get install postgresql-client)"
        )
    return found


def _run(databases: Databases, name: str, command: str, *words: str) -> None:
    """Run a program on one of the databases. No process list shows the password."""
    address, password = databases.for_programs(name)
    environment: Mapping[str, str] = {**os.environ, **({"PGPASSWORD": password} if password else {})}
    asked = [program(command), *words, "--no-password", f"--dbname={address}"]
    done = subprocess.run(asked, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise BadConfiguration(f"{command} of {name} at {databases.place} failed: {_last(done.stderr)}")


def _last(text: str) -> str:
    """The last line that says what failed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if "error" in line.lower()] or lines or ["it does not say why"]
    return said[-1][:300]
