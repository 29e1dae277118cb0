"""The tables of a new SQLite file of Prefect, which its server would otherwise create by all migrations since 2022.

The migrations take 9 CPU seconds, ``prefect_tables.sql`` less than one. The file is used only if the installed Prefect
has the migrations that wrote it. After you upgrade Prefect, write the file again:

    python -m infra.servers.prefect_tables
"""

import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

from infra.servers.sqlite_addresses import sqlite_uri

TABLES = Path(__file__).with_name("prefect_tables.sql")
MIGRATIONS = "server/database/_migrations/versions/sqlite"
REVISION = re.compile(r"^(down_)?revision(?:: [^=]+)? = ['\"](\w+)['\"]", re.M)
RECORDED = re.compile(r"INSERT INTO \"?alembic_version\"? VALUES\('(\w+)'\)")


def create_tables(file: Path | None) -> None:
    """Create the database ``file`` with Prefect's tables, unless it exists or ``TABLES`` is of other migrations.

    The caller holds the lock of a server that starts.
    """
    if not file or file.name == ":memory:" or file.exists():
        return
    statements = TABLES.read_text()
    recorded = RECORDED.search(statements)
    if not recorded or recorded[1] != prefect_revision():
        return
    partial = file.with_name(f"{file.name}.partial")
    partial.unlink(missing_ok=True)
    with closing(sqlite3.connect(partial)) as connection:
        connection.executescript(statements)
    partial.replace(file)


def prefect_revision() -> str:
    """The last migration of the installed Prefect, read from its files without an import; "" if they do not tell."""
    found = find_spec("prefect")
    assert found is not None
    assert found.origin
    revisions, earlier = set[str](), set[str]()
    for file in (Path(found.origin).parent / MIGRATIONS).glob("*.py"):
        for is_earlier, revision in REVISION.findall(file.read_text()):
            (earlier if is_earlier else revisions).add(revision)
    newest = revisions - earlier
    return newest.pop() if len(newest) == 1 else ""


def migrated() -> str:
    """The SQL statements that create what Prefect's own migrations create in an empty database."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "prefect.db")
        own = {"PREFECT_HOME": folder, "PREFECT_SERVER_DATABASE_CONNECTION_URL": sqlite_uri(file, "sqlite+aiosqlite")}
        command = (sys.executable, "-m", "prefect", "server", "database", "upgrade", "-y")
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | own)
        with closing(sqlite3.connect(file)) as connection:
            return "".join(f"{line}\n" for line in connection.iterdump())


if __name__ == "__main__":
    ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    TABLES.write_text(migrated())
