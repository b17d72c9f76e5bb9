"""A switch of a leader's log: what is written so far is complete, and goes to the archive."""

from typing import Final

import psycopg

from keyplan.apps.patroni.records import Credentials

__all__ = ["switch_log"]

_CONNECT_SECONDS: Final = 5


def switch_log(address: str, superuser: Credentials) -> str:
    """Commit something, switch, and return the name of the segment that has to be archived. Raises psycopg.Error.

    Why something is committed: a recovery to a time ends at the first commit after it, and fails where there is none.
    """
    host, _, port = address.rpartition(":")
    with psycopg.connect(
        host=host.strip("[]"),
        port=int(port),
        user=superuser.username,
        password=superuser.password.reveal(),
        dbname="postgres",
        connect_timeout=_CONNECT_SECONDS,
        autocommit=True,
        application_name="keyplan-patroni-broker",
        options="-c statement_timeout=20000 -c synchronous_commit=local",
    ) as connection:
        connection.execute("SELECT txid_current()")
        row = connection.execute("SELECT pg_walfile_name(pg_switch_wal())").fetchone()
        return str(row[0]) if row is not None else ""
