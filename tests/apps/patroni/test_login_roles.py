"""Roles that take the place of others in a PostgreSQL that somebody else has set up."""

from collections.abc import Iterator

import pytest

from keyplan import Secret
from keyplan.apps.patroni import Credentials
from keyplan.apps.patroni.login_roles import drop_former, free_name, let_former_end, make_role
from keyplan.apps.patroni.logins import LoginKind
from tests.servers.postgres import PASSWORD, SUPERUSER, PostgresServer

ROLES = ("batch", "batch_5", "batch_6", "batch_7", "batch_8")


@pytest.fixture
def server(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """A server on which `batch_5` replicates, and `batch` and `batch_7` are somebody's own."""
    for role in ("batch", "batch_5", "batch_7"):
        postgres_server.query(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'p'")
    yield postgres_server
    for role in ROLES:
        postgres_server.query(f"DROP ROLE IF EXISTS {role}")


def test_what_is_replaced_ends_and_roles_whose_names_merely_fit_are_left_alone(server: PostgresServer) -> None:
    """An adopted cluster names its roles as it likes: a number at the end of one says nothing of a role without it."""
    address = f"127.0.0.1:{server.port}"
    superuser = Credentials(username=SUPERUSER, password=Secret(PASSWORD))
    former = "batch_5"
    for expected, ended in (("batch_6", ["batch_5"]), ("batch_8", ["batch_6"])):
        name = free_name(address, superuser, former, {former})
        assert name == expected
        role = Credentials(username=name, password=Secret("q"))
        make_role(address, superuser, LoginKind.REPLICATION, role, former=former)
        over = let_former_end(address, superuser, name, keep_seconds=0, current={name, SUPERUSER})
        assert over == ended
        drop_former(address, superuser, over)
        former = name
    left = server.query("SELECT rolname, rolvaliduntil IS NULL FROM pg_roles WHERE rolname ~ '^batch' ORDER BY 1")
    assert left == [("batch", True), ("batch_7", True), ("batch_8", False)]
