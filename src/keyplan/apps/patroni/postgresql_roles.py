"""Roles in an instance's PostgreSQL, one for each binding: made and dropped through its leader.

A role acts as the group role `keyplan_app`, which owns what bindings create: one binding's tables are there for the others, and
stay when it goes. Passwords reach the server as SCRAM verifiers, so that no log of its statements holds one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import psycopg
from psycopg import sql

from keyplan.apps.patroni.records import Credentials

__all__ = [
    "GROUP_ROLE",
    "ToldIdentifier",
    "binding_roles",
    "connected",
    "create_role",
    "drop_role",
    "role_exists",
    "system_identifier_of",
    "verifier_of",
]

GROUP_ROLE: Final = "keyplan_app"
"""The owner of everything that bindings create."""

_CONNECT_SECONDS: Final = 5
_LOCK: Final = 7_236_544_177_120_851_290
"""Why: two bindings that are made at once would both create the group role, and one of them fail."""


def create_role(address: str, superuser: Credentials, database: str, role: Credentials) -> None:
    """Make the role, with its password, and the group role where it lacks; one transaction. Making it twice is harmless.

    Raises psycopg.Error.
    """
    with connected(address, superuser, database) as connection:
        group, name, home = sql.Identifier(GROUP_ROLE), sql.Identifier(role.username), sql.Identifier(database)
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        if not role_exists(connection, GROUP_ROLE):
            connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(group))
        connection.execute(sql.SQL("GRANT CONNECT, CREATE, TEMPORARY ON DATABASE {} TO {}").format(home, group))
        connection.execute(sql.SQL("GRANT USAGE, CREATE ON SCHEMA public TO {}").format(group))
        verifier = verifier_of(connection, role)
        verb = "ALTER" if role_exists(connection, role.username) else "CREATE"
        connection.execute(sql.SQL("{} ROLE {} LOGIN PASSWORD {}").format(sql.SQL(verb), name, sql.Literal(verifier)))
        connection.execute(sql.SQL("GRANT {} TO {}").format(group, name))
        connection.execute(sql.SQL("ALTER ROLE {} SET role = {}").format(name, sql.Literal(GROUP_ROLE)))


def drop_role(address: str, superuser: Credentials, database: str, username: str, *, heir: str = GROUP_ROLE) -> None:
    """End the role's log-in and sessions, hand what it owns to another role, and drop it. Dropping twice is harmless.

    Raises psycopg.Error.
    """
    name, group = sql.Identifier(username), sql.Identifier(heir)
    with connected(address, superuser, database) as connection:
        if not role_exists(connection, username):
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


def binding_roles(address: str, superuser: Credentials, database: str) -> list[str]:
    """Return the roles that `create_role` has made. Raises psycopg.Error."""
    with connected(address, superuser, database) as connection:
        # Why by their setting: whoever else is in the group was put there by others.
        found = connection.execute(
            "SELECT member.rolname::text FROM pg_auth_members JOIN pg_roles AS member ON member.oid = pg_auth_members.member"
            " JOIN pg_roles AS home ON home.oid = roleid WHERE home.rolname = %s AND %s = ANY(member.rolconfig)",
            (GROUP_ROLE, f"role={GROUP_ROLE}"),
        ).fetchall()
        return sorted(str(name) for (name,) in found)


def verifier_of(connection: "psycopg.Connection[tuple[object, ...]]", role: Credentials) -> str:
    """Return what PostgreSQL keeps of a role's password, and may stand in a statement that it logs."""
    made = connection.pgconn.encrypt_password(role.password.reveal().encode(), role.username.encode(), b"scram-sha-256")
    return made.decode()


class ToldIdentifier(NamedTuple):
    """The system identifier that a PostgreSQL tells, or why it does not. `version` is its major version, told to superusers."""

    identifier: str
    problem: str
    version: str = ""


def system_identifier_of(address: str, user: Credentials, *, is_replication: bool) -> ToldIdentifier:
    """Ask the leader's PostgreSQL at an address who it is, as its superuser or as the user that standbys log in as.

    What is wrong with the user, or with the place, is in the answer.
    """
    try:
        if is_replication:
            return ToldIdentifier(_identified(address, user), "")
        with connected(address, user, "postgres") as connection:
            row = connection.execute(
                "SELECT system_identifier::text, pg_is_in_recovery(), current_setting('is_superuser') = 'on'"
                " FROM pg_control_system()"
            ).fetchone()
            version = _major(connection.info.server_version)
    except (psycopg.Error, ValueError) as error:
        # Why the first line: libpq tells of each attempt at a host in one of its own.
        return ToldIdentifier("", (str(error).splitlines() or [type(error).__name__])[0])
    assert row is not None
    identifier, is_standby, is_superuser = row
    problem = "it takes no writes" if is_standby else "" if is_superuser else "it is no superuser"
    return ToldIdentifier(str(identifier), problem, version)


def _major(number: int) -> str:
    """Return the major version that a server's number is of: 170002 is 17, 90624 is 9.6."""
    major, rest = divmod(number, 10_000)
    return str(major) if major >= 10 else f"{major}.{rest // 100}"


def _identified(address: str, user: Credentials) -> str:
    host, _, port = address.rpartition(":")
    with psycopg.connect(
        host=host.strip("[]"),
        port=int(port),
        user=user.username,
        password=user.password.reveal(),
        connect_timeout=_CONNECT_SECONDS,
        autocommit=True,
        replication="true",
    ) as connection:
        # Why below psycopg: a connection for replication knows its own commands alone, in the simple protocol.
        told = connection.pgconn.exec_(b"IDENTIFY_SYSTEM")
        found = told.get_value(0, 0) if told.ntuples else None
    if found is None:
        raise ValueError("it does not answer as a server for replication does")
    return found.decode()


@contextmanager
def connected(
    address: str, superuser: Credentials, database: str
) -> "Iterator[psycopg.Connection[tuple[object, ...]]]":
    """Connect to a server, `host:port`, for a block, at whose end its transaction is committed. Raises psycopg.Error."""
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


def role_exists(connection: "psycopg.Connection[tuple[object, ...]]", role: str) -> bool:
    """Whether a server has a role of this name."""
    return connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone() is not None
