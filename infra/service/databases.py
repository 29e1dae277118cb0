"""PostgreSQL for both servers: two databases derived from one address and created if missing.

``postgresql://user@host/name`` gives the addresses of ``name_prefect`` and ``name_mlflow``. There are two because both
servers keep their schema version in a table of the same name. An address may hold a password; no message repeats it.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from infra.errors import BadConfiguration, NetworkFault

VARIABLE = "REPRO_DATABASE_URL"
PATIENCE_SECONDS = 10


@dataclass(frozen=True)
class Databases:
    """The databases ``<name>_prefect`` and ``<name>_mlflow`` on one PostgreSQL server."""

    address: str = field(repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.address)
        try:
            numbered = parts.port is None or parts.port > 0
        except ValueError:
            numbered = False
        if parts.scheme not in ("postgresql", "postgres") or not self.name or "/" in self.name or not numbered:
            raise BadConfiguration(
                f"--database-url ({VARIABLE}) has the scheme {parts.scheme!r} and names the "
                f"database {self.name!r}, allowed is postgresql://user@host:port/name"
            )

    @property
    def name(self) -> str:
        return urlsplit(self.address).path.strip("/")

    @property
    def names(self) -> tuple[str, str]:
        return f"{self.name}_prefect", f"{self.name}_mlflow"

    @property
    def place(self) -> str:
        """Host and port of the server, for messages."""
        parts = urlsplit(self.address)
        query = dict(parse_qsl(parts.query))
        return f"{parts.hostname or query.get('host', 'localhost')}:{parts.port or query.get('port', 5432)}"

    @property
    def for_prefect(self) -> str:
        # asyncpg calls libpq's sslmode ssl.
        query = [("ssl" if name == "sslmode" else name, value) for name, value in self._query]
        return self._rewritten("postgresql+asyncpg", self.names[0], query)

    @property
    def for_mlflow(self) -> str:
        return self._rewritten("postgresql+psycopg2", self.names[1], self._query)

    def make(self) -> tuple[str, ...]:
        """Create the missing databases; returns their names.

        Raises NetworkFault if the server cannot be reached, BadConfiguration if the user may not create databases.
        """
        from psycopg2 import Error
        from psycopg2.sql import SQL, Identifier

        with self._connected() as cursor:
            cursor.execute("SELECT datname FROM pg_database WHERE datname IN %s", (self.names,))
            existing = {row[0] for row in cursor.fetchall()}
            missing = tuple(name for name in self.names if name not in existing)
            try:
                for name in missing:
                    cursor.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
            except Error as error:
                user = urlsplit(self.address).username or "the user"
                commands = "; ".join(f"createdb --owner={user} {name}" for name in missing)
                raise BadConfiguration(
                    f"{user} may not create {' and '.join(missing)} at {self.place} ({_first_line(error)}); "
                    f"an administrator can run {commands}"
                ) from None
            return missing

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        try:
            import psycopg2
        except ImportError:
            raise BadConfiguration("PostgreSQL needs psycopg2: pip install -e '.[postgresql]'") from None
        refused = ""
        # A connection needs an existing database; the one in the address may be missing.
        for name in dict.fromkeys((self.name, "postgres", "template1")):
            address = self._rewritten("postgresql", name, self._query)
            try:
                connection = psycopg2.connect(address, connect_timeout=PATIENCE_SECONDS)
            except psycopg2.OperationalError as error:
                refused = refused or _first_line(error)
                continue
            with closing(connection):
                connection.autocommit = True
                with connection.cursor() as cursor:
                    yield cursor
            return
        raise NetworkFault(f"PostgreSQL at {self.place} cannot be reached or refuses the connection: {refused}")

    @property
    def _query(self) -> list[tuple[str, str]]:
        return parse_qsl(urlsplit(self.address).query)

    def _rewritten(self, scheme: str, name: str, query: list[tuple[str, str]]) -> str:
        parts = urlsplit(self.address)
        return parts._replace(scheme=scheme, path=f"/{quote(name)}", query=urlencode(query)).geturl()


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
