"""Roles in an instance's PostgreSQL, one for each binding: made and dropped through its leader.

A role acts as the group role `keyplan_app`, which owns what bindings create: one binding's tables are there for the others, and
stay when it goes. Passwords reach the server as SCRAM verifiers, so that no log of its statements holds one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from psycopg import sql

from keyplan.apps.patroni.records import Credentials

__all__ = ["GROUP_ROLE", "create_role", "drop_role"]

GROUP_ROLE: Final = "keyplan_app"
"""The owner of everything that bindings create."""

_CONNECT_SECONDS: Final = 5
_LOCK: Final = 7_236_544_177_120_851_290
"""Why: two bindings that are made at once would both create the group role, and one of them fail."""


def create_role(address: str, superuser: Credentials, database: str, role: Credentials) -> None:
    """Make the role, with its password, and the group role where it lacks; one transaction. Making it twice is harmless.

    Raises psycopg.Error.
    """
    with _connected(address, superuser, database) as connection:
        group, name, home = sql.Identifier(GROUP_ROLE), sql.Identifier(role.username), sql.Identifier(database)
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        if not _exists(connection, GROUP_ROLE):
            connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(group))
        connection.execute(sql.SQL("GRANT CONNECT, CREATE, TEMPORARY ON DATABASE {} TO {}").format(home, group))
        connection.execute(sql.SQL("GRANT USAGE, CREATE ON SCHEMA public TO {}").format(group))
        verifier = connection.pgconn.encrypt_password(
            role.password.reveal().encode(), role.username.encode(), b"scram-sha-256"
        ).decode()
        verb = "ALTER" if _exists(connection, role.username) else "CREATE"
        connection.execute(sql.SQL("{} ROLE {} LOGIN PASSWORD {}").format(sql.SQL(verb), name, sql.Literal(verifier)))
        connection.execute(sql.SQL("GRANT {} TO {}").format(group, name))
        connection.execute(sql.SQL("ALTER ROLE {} SET role = {}").format(name, sql.Literal(GROUP_ROLE)))


def drop_role(address: str, superuser: Credentials, database: str, username: str) -> None:
    """End the role's log-in and sessions, hand what it owns to the group role, and drop it. Dropping twice is harmless.

    Raises psycopg.Error.
    """
    name, group = sql.Identifier(username), sql.Identifier(GROUP_ROLE)
    with _connected(address, superuser, database) as connection:
        if not _exists(connection, username):
            return
        # Why in a commit of its own: sessions that begin after it are refused, so that none is left behind the next line.
        connection.execute(sql.SQL("ALTER ROLE {} NOLOGIN").format(name))
        connection.commit()
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = %s", (username,)
        )
        connection.execute(sql.SQL("REASSIGN OWNED BY {} TO {}").format(name, group))
        connection.execute(sql.SQL("DROP OWNED BY {}").format(name))
        connection.execute(sql.SQL("DROP ROLE {}").format(name))


@contextmanager
def _connected(
    address: str, superuser: Credentials, database: str
) -> "Iterator[psycopg.Connection[tuple[object, ...]]]":
    host, _, port = address.rpartition(":")
    with psycopg.connect(
        host=host.strip("[]"),
        port=int(port),
        user=superuser.username,
        password=superuser.password.reveal(),
        dbname=database,
        connect_timeout=_CONNECT_SECONDS,
        application_name="keyplan-patroni-broker",
        # Why: with synchronous replication a commit waits for a replica, perhaps for ever; then this fails instead.
        options="-c statement_timeout=20000",
    ) as connection:
        yield connection


def _exists(connection: "psycopg.Connection[tuple[object, ...]]", role: str) -> bool:
    return connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone() is not None
