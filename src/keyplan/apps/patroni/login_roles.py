"""Roles that a cluster's own programs log in as, in its PostgreSQL: another one made and seen, the former ones ended.

Every function connects anew, may be called twice, and raises psycopg.Error. A role that was made here, or whose place one that
was made here takes, says so in its comment: others whose names fit are somebody else's, and are left alone.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

import psycopg
from psycopg import pq, sql
from psycopg.conninfo import make_conninfo

from keyplan.apps.patroni.logins import LoginKind, login_base, login_number
from keyplan.apps.patroni.postgresql_roles import connected, drop_role, role_exists, verifier_of
from keyplan.apps.patroni.records import Credentials

if TYPE_CHECKING:
    Connection = psycopg.Connection[tuple[object, ...]]

__all__ = [
    "Logins",
    "drop_former",
    "end_sessions",
    "family_of",
    "free_name",
    "let_former_end",
    "logged_in",
    "make_role",
    "refusal",
]

DATABASE: Final = "postgres"
"""The database that Patroni itself connects to."""
_COMMENT: Final = "keyplan: the cluster's own programs log in as this role"
_CONNECT_SECONDS: Final = 5
_OWNER_OID: Final = 10
"""Whom initdb has made: it owns what superusers make."""
_REWIND_FUNCTIONS: Final = (
    "pg_ls_dir(text, boolean, boolean)",
    "pg_stat_file(text, boolean)",
    "pg_read_binary_file(text)",
    "pg_read_binary_file(text, bigint, bigint, boolean)",
)
"""What pg_rewind calls at the server that it copies from."""
_ATTRIBUTES: Final[Mapping[LoginKind, LiteralString]] = {
    LoginKind.SUPERUSER: "SUPERUSER",
    LoginKind.REPLICATION: "REPLICATION",
    LoginKind.REWIND: "",
}


class Logins(NamedTuple):
    """Who logs in to a server: the users of Patroni's own connections, and by its name that of each standby."""

    patroni: frozenset[str]
    standbys: dict[str, str]


def free_name(address: str, superuser: Credentials, role: str, taken: Collection[str]) -> str:
    """Return the name of the role that comes after another: `postgres_2` after `postgres`, where it is not taken."""
    base, number = login_base(role), login_number(role)
    with connected(address, superuser, DATABASE) as connection:
        while True:
            number += 1
            name = f"{base}_{number}"
            if name not in taken and (not role_exists(connection, name) or _is_ours(connection, name)):
                return name


def make_role(address: str, superuser: Credentials, kind: LoginKind, role: Credentials, *, former: str) -> None:
    """Make a role of a kind, with its password. It takes the place of a former one; of none, where that is empty."""
    with connected(address, superuser, DATABASE) as connection:
        name = sql.Identifier(role.username)
        verb = sql.SQL("ALTER" if role_exists(connection, role.username) else "CREATE")
        attributes = sql.SQL(_ATTRIBUTES[kind])
        # Why a verifier: a server may log its statements.
        verifier = sql.Literal(verifier_of(connection, role))
        connection.execute(
            sql.SQL("{} ROLE {} LOGIN {} PASSWORD {} VALID UNTIL 'infinity'").format(verb, name, attributes, verifier)
        )
        # Why the former one's, too: an adopted cluster names its roles as it likes. `app_5` ends then, and a role `app`, which
        # is no user of the cluster's programs, does not.
        for commented in filter(None, (role.username, former if role_exists(connection, former) else "")):
            connection.execute(
                sql.SQL("COMMENT ON ROLE {} IS {}").format(sql.Identifier(commented), sql.Literal(_COMMENT))
            )
        if kind is LoginKind.REWIND:
            for function in _REWIND_FUNCTIONS:
                granted = sql.SQL("GRANT EXECUTE ON FUNCTION pg_catalog.{} TO {}")
                connection.execute(granted.format(sql.SQL(function), name))
        owner = _owner(connection)
        if kind is LoginKind.SUPERUSER and owner != role.username:
            # Why: what it makes belongs to the one superuser that stays, and it can be dropped.
            connection.execute(sql.SQL("ALTER ROLE {} SET role = {}").format(name, sql.Literal(owner)))


def refusal(address: str, role: Credentials, database: str | None) -> str:
    """Return why a role cannot log in to a server, in the server's words; empty when it can. No database: as a standby."""
    host, _, port = address.rpartition(":")
    asked = {
        "host": host.strip("[]"),
        "port": port,
        "user": role.username,
        "password": role.password.reveal(),
        "connect_timeout": str(_CONNECT_SECONDS),
        "application_name": "keyplan-patroni-broker",
        **({"replication": "true"} if database is None else {"dbname": database}),
    }
    # Why not psycopg's own: it takes a connection for one with a database.
    connection = pq.PGconn.connect(make_conninfo("", **asked).encode())
    try:
        if connection.status == pq.ConnStatus.OK:
            return ""
        return (connection.error_message.decode(errors="replace").strip().splitlines() or ["no answer"])[-1]
    finally:
        connection.finish()


def logged_in(address: str, superuser: Credentials) -> Logins:
    """Return who logs in to a server, and end Patroni's own connections of former users: it connects again at its next loop."""
    with connected(address, superuser, DATABASE) as connection:
        found = connection.execute(
            "SELECT pid, usename FROM pg_stat_activity WHERE starts_with(application_name, 'Patroni ')"
        ).fetchall()
        former = [pid for pid, user in found if user != superuser.username]
        connection.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) AS pid", (former,))
        standbys = connection.execute("SELECT application_name, usename FROM pg_stat_replication").fetchall()
    return Logins(frozenset(str(user) for _, user in found), {str(name): str(user) for name, user in standbys})


def let_former_end(
    address: str,
    superuser: Credentials,
    role: str,
    *,
    keep_seconds: float,
    current: Collection[str] = (),
    database: str = DATABASE,
    is_name_ours: bool = False,
) -> list[str]:
    """Let the roles whose place a role has taken end: each may log in for so long, none for longer than it might already.

    Those that are `current`, for whatever, are left. Return those that can log in no more. With `is_name_ours` nobody else has
    made a role of such a name.
    """
    with connected(address, superuser, database) as connection:
        names = [
            name
            for name in _family(connection, role)
            if name not in current and (is_name_ours or _is_ours(connection, name))
        ]
        for name in names:
            # Why by the server's clock, and by the server: nobody has to come back for it.
            until = connection.execute(
                "SELECT LEAST(COALESCE(rolvaliduntil, 'infinity'), now() + make_interval(secs => %s))::text"
                " FROM pg_roles WHERE rolname = %s",
                (keep_seconds, name),
            ).fetchone()
            assert until is not None
            connection.execute(
                sql.SQL("ALTER ROLE {} VALID UNTIL {}").format(sql.Identifier(name), sql.Literal(until[0]))
            )
    with connected(address, superuser, database) as connection:
        over = connection.execute("SELECT rolname FROM pg_roles WHERE rolvaliduntil <= now()").fetchall()
        return [name for name in names if (name,) in over]


def end_sessions(address: str, superuser: Credentials, roles: Sequence[str]) -> None:
    """End the sessions of roles on one server."""
    with connected(address, superuser, DATABASE) as connection:
        connection.execute(
            # Why by its kind: PostgreSQL's own processes have the user that initdb has made.
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE usename = ANY(%s) AND backend_type IN ('client backend', 'walsender')",
            ([*roles],),
        )


def drop_former(
    address: str, superuser: Credentials, roles: Sequence[str], *, database: str = DATABASE, heir: str = ""
) -> None:
    """Drop roles that have ended; `heir`, without one the superuser that stays, is given what they own.

    The one that stays is left, and one that owns something in another database cannot log in any more.
    """
    with connected(address, superuser, database) as connection:
        owner = _owner(connection)
    for name in roles:
        if name == owner:
            continue
        # Why passed over: the role is NOLOGIN by then, which is what counts.
        with suppress(psycopg.errors.DependentObjectsStillExist):
            drop_role(address, superuser, database, name, heir=heir or owner)


def family_of(address: str, superuser: Credentials, role: str, database: str) -> list[str]:
    """Return the roles whose place a role has taken, and those that were made to take its place."""
    with connected(address, superuser, database) as connection:
        return _family(connection, role)


def _family(connection: "Connection", role: str) -> list[str]:
    base = login_base(role)
    found = connection.execute("SELECT rolname FROM pg_roles WHERE starts_with(rolname, %s)", (base,)).fetchall()
    return sorted(name for (name,) in found if isinstance(name, str) and name != role and login_base(name) == base)


def _is_ours(connection: "Connection", name: str) -> bool:
    found = connection.execute(
        "SELECT shobj_description(oid, 'pg_authid') FROM pg_authid WHERE rolname = %s", (name,)
    ).fetchone()
    return found == (_COMMENT,)


def _owner(connection: "Connection") -> str:
    found = connection.execute("SELECT rolname FROM pg_roles WHERE oid = %s", (_OWNER_OID,)).fetchone()
    assert found is not None
    return str(found[0])
