"""The tables of a store, and every statement but those that carry out a commit (`commit_sql`). Text only; nothing here runs.

    state     one row: format, compacted; store, server, leapt: its lineage. Its lock is what commits queue for; commits do not
              change it
    entries   key -> value, create_revision, mod_revision, version, lease
    history   (revision, key) -> what the key holds after and before; a NULL value: nothing
    leases    id -> ttl_seconds, deadline, by the server's clock

The store's revision is that of the last row of the history, or `compacted` where there is none. In a text, @ is the schema.
"""

from typing import Final

from keyplan.engine.postgres.commit_sql import LAST_REVISION, LOGGED, commit_text
from keyplan.engine.postgres.session import Statement

__all__ = ["BEGIN", "BEGIN_SNAPSHOT", "COMMIT", "FORMAT", "ROLLBACK", "Statements", "making", "settings"]

FORMAT: Final = "keyplan 1"

BEGIN: Final = Statement(b"begin", b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
"""Why not serializable: who holds the lock on the state row reads, statement by statement, what everybody before has committed,
and nobody else writes. So commits are serial in fact, and none fails for having waited."""
BEGIN_SNAPSHOT: Final = Statement(b"snapshot", b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
COMMIT: Final = Statement(b"commit", b"COMMIT")
ROLLBACK: Final = Statement(b"rollback", b"ROLLBACK")

_TABLES: Final = (
    (
        "CREATE TABLE @state (only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row), format text NOT NULL, "
        "compacted bigint NOT NULL, store text NOT NULL, server text NOT NULL, leapt bigint NOT NULL)"
    ),
    (
        "CREATE TABLE @entries (key bytea PRIMARY KEY, value bytea NOT NULL, create_revision bigint NOT NULL, "
        "mod_revision bigint NOT NULL, version bigint NOT NULL, lease bigint NOT NULL)"
    ),
    "CREATE INDEX entries_lease ON @entries (lease) WHERE lease <> 0",
    (
        "CREATE TABLE @history (revision bigint NOT NULL, key bytea NOT NULL, value bytea, create_revision bigint, "
        "version bigint, lease bigint, before_value bytea, before_create_revision bigint, before_mod_revision bigint, "
        "before_version bigint, before_lease bigint, PRIMARY KEY (revision, key))"
    ),
    (
        "CREATE TABLE @leases (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ttl_seconds double precision NOT NULL, "
        "deadline timestamptz NOT NULL)"
    ),
    "CREATE INDEX leases_deadline ON @leases (deadline)",
    (
        f"INSERT INTO @state (format, compacted, store, server, leapt) "
        f"VALUES ('{FORMAT}', 0, md5(random()::text || clock_timestamp()::text), '', 0)"
    ),
)

_ADD_LINEAGE: Final = (
    "ALTER TABLE @state ADD COLUMN IF NOT EXISTS store text NOT NULL "
    "DEFAULT md5(random()::text || clock_timestamp()::text), "
    "ADD COLUMN IF NOT EXISTS server text NOT NULL DEFAULT '', "
    "ADD COLUMN IF NOT EXISTS leapt bigint NOT NULL DEFAULT 0"
)
"""For a store that was made before stores had a lineage."""

_SETTINGS: Final = {
    "search_path": "pg_catalog",
    "default_transaction_isolation": "read committed",
    # Why: every statement here walks an index. With unknown parameters, the planner might take a table for small, and read it.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
}

_ENTRY: Final = "key, value, create_revision, mod_revision, version, lease"
_BARE_ENTRY: Final = "key, ''::bytea, create_revision, mod_revision, version, lease"


def making(schema: str, *, has_schema: bool) -> list[bytes]:
    """Return the statements that make an empty store, in a schema that is there or not."""
    first = [] if has_schema else [f'CREATE SCHEMA "{schema}"'.encode()]
    return [*first, *(_in(schema, text) for text in _TABLES)]


def settings(*, is_readonly: bool, is_durable: bool, seconds: float, ends_idle_transactions: bool) -> Statement:
    """Return the statement that a connection begins with. It answers with the server's version and whether it flushes.

    `ends_idle_transactions`: a writer that is halted in the middle of a commit shall not keep others from theirs for longer.
    """
    milliseconds = str(int(seconds * 1_000))
    given = {
        **_SETTINGS,
        "default_transaction_read_only": "on" if is_readonly else "off",
        "statement_timeout": milliseconds,
        **({"idle_in_transaction_session_timeout": milliseconds} if ends_idle_transactions else {}),
    }
    parts = [f"set_config('{name}', '{value}', false)" for name, value in given.items()]
    # Why not always: 'remote_apply', say, is more than 'on'.
    wanted = "'on'" if is_durable else "'off'"
    change = "IN ('off', 'local')" if is_durable else "<> 'off'"
    parts.append(
        f"CASE WHEN current_setting('synchronous_commit') {change} "
        f"THEN set_config('synchronous_commit', {wanted}, false) END"
    )
    asked = "current_setting('server_version_num')::int8, current_setting('fsync') = 'on'"
    return Statement(b"settings", f"SELECT {asked}, {', '.join(parts)}".encode())  # Why: our own words.


class Statements:
    """The statements on one store's tables."""

    def __init__(self, schema: str, *, has_notify: bool = True) -> None:
        self.schema = schema
        channel = f"keyplan_{schema}"
        self.told = f"pg_notify('{channel}', '')::text" if has_notify else "NULL::text"
        """What a statement that changes something selects, so that watches of other processes look at once."""
        self._commits: dict[tuple[str, ...], Statement] = {}
        self._values: dict[int, Statement] = {}
        self.find = Statement(
            b"find",
            f"SELECT to_regnamespace('\"{schema}\"') IS NOT NULL, to_regclass('\"{schema}\".state') IS NOT NULL".encode(),
        )
        self.format = self.of("format", "SELECT s.format, to_jsonb(s) ->> 'leapt' IS NOT NULL FROM @state s")
        self.add_lineage = self.of("add_lineage", _ADD_LINEAGE)
        self.lock = self.of("lock", "SELECT compacted FROM @state FOR UPDATE")
        self.listen = Statement(b"listen", f'LISTEN "{channel}"'.encode())
        self.revision = self.of("revision", f"SELECT {LAST_REVISION}, s.compacted FROM @state s")
        self._say_reads()
        self._say_writes()
        self._say_leases()

    def _say_reads(self) -> None:
        self.get = self.of("get", f"SELECT {_ENTRY} FROM @entries WHERE key = $1")
        self.value = self.of("value", "SELECT value FROM @entries WHERE key = $1")
        self.get_many = self.of("get_many", f"SELECT {_ENTRY} FROM @entries WHERE key IN (SELECT unnest($1::bytea[]))")
        self.count = self.of("count", "SELECT count(*) FROM @entries WHERE key >= $1 AND key < $2")
        self.pages = {
            (columns, reverse): self._page(columns, text, reverse=reverse)
            for columns, text in (("entry", _ENTRY), ("bare", _BARE_ENTRY), ("key", "key"), ("pair", "key, value"))
            for reverse in (False, True)
        }
        self.events = self.of("events", _EVENTS)

    def _say_writes(self) -> None:
        self.has_any = self.of(
            "has_any", f"SELECT {LAST_REVISION}, EXISTS (SELECT FROM @entries WHERE key >= $1 AND key <= $2)"
        )
        self.copy = self._in(f"COPY @entries ({_ENTRY}) FROM STDIN (FORMAT binary)")
        self.log_copied = self.of(
            "log_copied",
            f"WITH logged AS ({LOGGED} SELECT mod_revision, key, value, create_revision, version, lease, NULL::bytea, "
            f"NULL::int8, NULL::int8, NULL::int8, NULL::int8 FROM @entries WHERE key >= $1 AND key <= $2 RETURNING revision) "
            f"SELECT count(*), {self.told} FROM logged",
        )

        self.compact = self.of("compact", "UPDATE @state SET compacted = greatest(compacted, $1::int8)")
        self.trim = self.of(
            "trim",
            "DELETE FROM @history WHERE revision <= least($1::int8, (SELECT max(part.revision) FROM "
            "(SELECT revision FROM @history WHERE revision <= $1::int8 ORDER BY revision LIMIT $2::int8) part))",
        )

    def _say_leases(self) -> None:
        left = "extract(epoch FROM deadline - clock_timestamp())::float8"
        self.grant = self.of(
            "grant",
            "INSERT INTO @leases (ttl_seconds, deadline) "
            "VALUES ($1::float8, clock_timestamp() + $1::float8 * interval '1 second') RETURNING id",
        )
        self.living = self.of(
            "living", f"SELECT ttl_seconds, {left} FROM @leases WHERE id = $1 AND deadline > clock_timestamp()"
        )
        self.keep_alive = self.of(
            "keep_alive",
            "UPDATE @leases SET deadline = clock_timestamp() + ttl_seconds * interval '1 second' "
            "WHERE id = $1 AND deadline > clock_timestamp() RETURNING ttl_seconds",
        )
        self.next_end = self.of(
            "next_end", f"SELECT min({left}) FROM (SELECT min(deadline) AS deadline FROM @leases) l"
        )
        self.over = self.of(
            "over",
            "SELECT id FROM @leases WHERE deadline <= clock_timestamp() ORDER BY deadline, id LIMIT 1000 FOR UPDATE",
        )
        self.end_lease = self.of("end_lease", _END_LEASE.replace("#", self.told))

    def of(self, name: str, text: str) -> Statement:
        """Return a statement of that name; @ in the text stands for the schema."""
        return Statement(name.encode(), self._in(text))

    def commit(self, kinds: tuple[str, ...]) -> Statement:
        """Return the statement that carries out a commit with these kinds of guards and mutations."""
        statement = self._commits.get(kinds)
        if statement is None:
            statement = self._commits[kinds] = self.of("-".join(("carry", *kinds)), commit_text(kinds, self.told))
        return statement

    def values(self, keys: int) -> Statement:
        """Return the statement that reads what stands at so many keys, of those that are there: the key, its value behind it.

        Why in an array of that length: it is one walk of the index, which costs less than a question for each key. Why one
        column: the server describes each of them with every answer.
        """
        statement = self._values.get(keys)
        if statement is None:
            places = ", ".join(f"${number + 1}" for number in range(keys))
            text = f"SELECT key || value FROM @entries WHERE key = ANY(ARRAY[{places}]::bytea[])"
            statement = self._values[keys] = self.of(f"values-{keys}", text)
        return statement

    def _in(self, text: str) -> bytes:
        return _in(self.schema, text)

    def _page(self, columns: str, text: str, *, reverse: bool) -> Statement:
        order = "DESC" if reverse else "ASC"
        return self.of(
            f"{columns}_{order}",
            f"SELECT {text} FROM @entries WHERE key >= $1 AND key < $2 ORDER BY key {order} LIMIT $3::int8",
        )


def _in(schema: str, text: str) -> bytes:
    return text.replace("@", f'"{schema}".').encode()


_EVENTS: Final = f"""
SELECT n.revision AS reached, s.compacted, h.*
FROM @state s
CROSS JOIN LATERAL (SELECT {LAST_REVISION} AS revision) n
LEFT JOIN LATERAL (
    SELECT h.revision, h.key, h.value, h.create_revision, h.version, h.lease, h.before_value, h.before_create_revision,
        h.before_mod_revision, h.before_version, h.before_lease
    FROM @history h
    WHERE h.revision > $1::int8 AND h.revision <= n.revision AND h.key >= $2 AND h.key < $3
        AND h.revision <= coalesce((
            SELECT max(part.revision) FROM (
                SELECT x.revision FROM @history x
                WHERE x.revision > $1::int8 AND x.revision <= n.revision AND x.key >= $2 AND x.key < $3
                ORDER BY x.revision LIMIT $4::int8) part), 0)
) h ON true
ORDER BY h.revision, h.key
"""
"""Whole revisions, as many as have at least $4 events together, with the store's revision of the same instant."""

_END_LEASE: Final = f"""
WITH now AS MATERIALIZED (SELECT {LAST_REVISION} AS revision),
ended AS (DELETE FROM @leases WHERE id = $1::int8 RETURNING id),
gone AS (DELETE FROM @entries e WHERE e.lease = $1::int8 AND e.lease <> 0 AND EXISTS (SELECT FROM ended) RETURNING e.*),
logged AS ({LOGGED} SELECT n.revision + 1, g.key, NULL::bytea, NULL::int8, NULL::int8, NULL::int8, g.value, g.create_revision,
    g.mod_revision, g.version, g.lease FROM gone g CROSS JOIN now n RETURNING revision)
SELECT max(revision), CASE WHEN count(*) > 0 THEN # END FROM logged
"""
