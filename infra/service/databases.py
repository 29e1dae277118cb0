"""PostgreSQL for both servers: derives two databases from one address, and creates missing ones.

``postgresql://user@host/name`` gives the databases ``name_prefect`` and ``name_mlflow``. Two are needed, because both
servers keep their schema version in a table of the same name. An address may contain a password; no message shows it.
"""

from infra.errors import BadConfiguration, NetworkFault
from infra.extras import check_installed

VARIABLE = "REPRO_DATABASE_URL"
PATIENCE_SECONDS = 10


class Databases:
    """The databases ``<name>_prefect`` and ``<name>_mlflow`` on one PostgreSQL server."""

    def __init__(self, address: str) -> None:
        check_installed("psycopg2", "PostgreSQL")
        from sqlalchemy import make_url
        from sqlalchemy.exc import ArgumentError

        try:
            self._url = make_url(address)
        except (ArgumentError, ValueError):
            raise BadConfiguration(f"{VARIABLE} is malformed, allowed is postgresql://user@host:port/name") from None
        name = self._url.database or ""
        if self._url.drivername not in ("postgresql", "postgres") or not name or "/" in name:
            raise BadConfiguration(
                f"--database-url ({VARIABLE}) has the scheme {self._url.drivername!r} and names the database {name!r}, "
                "allowed is postgresql://user@host:port/name"
            )
        self.names = (f"{name}_prefect", f"{name}_mlflow")

    @property
    def place(self) -> str:
        """Return host and port of the server, for messages."""
        return f"{self._url.host or self._url.query.get('host', 'localhost')}:{self._url.port or 5432}"

    @property
    def for_prefect(self) -> str:
        # asyncpg calls libpq's sslmode ssl.
        query = {"ssl" if name == "sslmode" else name: value for name, value in self._url.query.items()}
        url = self._url.set(drivername="postgresql+asyncpg", database=self.names[0], query=query)
        return url.render_as_string(hide_password=False)

    @property
    def for_mlflow(self) -> str:
        return self._at(self.names[1])

    def create_missing(self) -> list[str]:
        """Create the missing databases; returns their names. The server's database ``postgres`` must exist.

        Raises NetworkFault if the server cannot be reached, BadConfiguration if the user may not create databases.
        """
        from sqlalchemy import create_engine
        from sqlalchemy.exc import OperationalError, ProgrammingError
        from sqlalchemy.pool import NullPool

        patience = {"connect_timeout": PATIENCE_SECONDS}
        try:
            engine = create_engine(
                self._at("postgres"), isolation_level="AUTOCOMMIT", connect_args=patience, poolclass=NullPool
            )
            connection = engine.connect()
        except OperationalError as error:
            raise NetworkFault(f"PostgreSQL at {self.place} refuses the connection: {_first_line(error)}") from None
        with connection:
            existing = connection.exec_driver_sql("SELECT datname FROM pg_database").scalars().all()
            missing = [name for name in self.names if name not in existing]
            try:
                for name in missing:
                    quoted = engine.dialect.identifier_preparer.quote_identifier(name)
                    connection.exec_driver_sql(f"CREATE DATABASE {quoted}")
            except (OperationalError, ProgrammingError) as error:
                raise BadConfiguration(
                    f"the databases {' and '.join(missing)} cannot be created at {self.place} ({_first_line(error)}); "
                    f"an administrator can run createdb --owner={self._url.username} for each"
                ) from None
        return missing

    def _at(self, database: str) -> str:
        url = self._url.set(drivername="postgresql+psycopg2", database=database)
        return url.render_as_string(hide_password=False)


def _first_line(error: Exception) -> str:
    """Return the server's message; SQLAlchemy adds the statement and a link below it."""
    return f"{error}".partition("\n")[0]
