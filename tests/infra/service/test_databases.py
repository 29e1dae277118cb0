"""Databases for both servers, created on a real PostgreSQL server."""

from collections.abc import Iterator

import pytest
from postgresql import Cluster

from infra.errors import BadConfiguration, NetworkFault
from infra.service.databases import Databases

PASSWORD = "planted-SECRET-42"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    found = Cluster(PASSWORD)
    yield found
    found.end()


def test_missing_databases_are_created(cluster: Cluster) -> None:
    from sqlalchemy import create_engine

    found = Databases(cluster.address("postgres", PASSWORD, 'pa"per'))
    assert found.create_missing() == ['pa"per_prefect', 'pa"per_mlflow']
    assert found.create_missing() == [], "a second start finds them"
    with create_engine(found.for_mlflow).connect() as connection:
        assert connection.exec_driver_sql("SELECT current_database()").scalar() == 'pa"per_mlflow'


def test_a_role_that_may_not_create_databases_is_refused(cluster: Cluster) -> None:
    import psycopg2

    with psycopg2.connect(cluster.address("postgres", PASSWORD, "postgres")) as connection:
        connection.cursor().execute("CREATE ROLE reader LOGIN PASSWORD %s", (PASSWORD,))
    connection.close()
    found = Databases(cluster.address("reader", PASSWORD, "paper"))
    with pytest.raises(BadConfiguration, match="createdb --owner=reader"):
        found.create_missing()


def test_the_message_about_a_wrong_password_does_not_repeat_it(cluster: Cluster) -> None:
    with pytest.raises(NetworkFault, match="authentication failed") as error:
        Databases(cluster.address("postgres", "not-the-password", "paper")).create_missing()
    assert "not-the-password" not in str(error.value)
