"""The text of the statement that carries out a commit: it judges the guards, writes unless one failed, logs, tells what it did.

It runs under the lock on the state row, and all its parts read the state before it. The text depends on which kinds of guards
and mutations there are, not on how many, so that a connection prepares each once. @ stands for the schema.
"""

from collections.abc import Callable, Sequence
from typing import Final

__all__ = ["LAST_REVISION", "LOGGED", "OF_KEY", "OF_LEASE", "OF_RANGE", "commit_text"]

OF_KEY: Final = 1
OF_RANGE: Final = 2
OF_LEASE: Final = 3
"""What a row about a failure tells of."""

LAST_REVISION: Final = "(SELECT greatest(s.compacted, (SELECT max(h.revision) FROM @history h)) FROM @state s)"

LOGGED: Final = (
    "INSERT INTO @history (revision, key, value, create_revision, version, lease, before_value, "
    "before_create_revision, before_mod_revision, before_version, before_lease) "
)


class _Text:
    """The parts of a statement as they come together."""

    def __init__(self, *, condition: str) -> None:
        self.condition = condition
        self.expected: list[str] = []
        self.failures: list[str] = []
        self.writes: list[str] = []
        self.changes: list[str] = []
        self._parameters = 0

    def arrays(self, *types: str) -> str:
        """Return the next parameters, as what `unnest` takes."""
        return ", ".join(f"{self.one()}::{kind}[]" for kind in types)

    def one(self) -> str:
        """Return the next parameter."""
        self._parameters += 1
        return f"${self._parameters}"


def _keys(text: _Text) -> None:
    text.failures.append(
        f"SELECT {OF_KEY}::int8 AS kind, g.position, g.key, coalesce(e.mod_revision, 0) AS actual "
        f"FROM unnest({text.arrays('bytea', 'int8')}) WITH ORDINALITY AS g(key, expected, position) "
        f"LEFT JOIN @entries e ON e.key = g.key WHERE coalesce(e.mod_revision, 0) <> g.expected"
    )


def _ranges(text: _Text) -> None:
    """A range fails by a key that was not read or was written since, or by one that was read and is gone."""
    ranges = text.arrays("bytea", "bytea", "int8")
    text.expected.append(
        f"expected AS MATERIALIZED "
        f"(SELECT x.position, x.key FROM unnest({text.arrays('int8', 'bytea')}) AS x(position, key))"
    )
    text.failures.append(
        f"SELECT {OF_RANGE}::int8 AS kind, r.position, c.key, c.actual "
        f"FROM unnest({ranges}) WITH ORDINALITY AS r(first, stop, since, position) CROSS JOIN LATERAL ("
        f"(SELECT e.key, e.mod_revision AS actual FROM @entries e WHERE e.key >= r.first AND e.key < r.stop "
        f"AND (e.mod_revision > r.since OR (r.position, e.key) NOT IN (SELECT x.position, x.key FROM expected x)) "
        f"ORDER BY e.key LIMIT 1) UNION ALL "
        f"(SELECT x.key, 0::int8 FROM expected x WHERE x.position = r.position "
        f"AND NOT EXISTS (SELECT FROM @entries e WHERE e.key = x.key) ORDER BY x.key LIMIT 1)) c"
    )


def _leases(text: _Text) -> None:
    text.failures.append(
        f"SELECT {OF_LEASE}::int8 AS kind, 0::int8 AS position, ''::bytea AS key, l.id AS actual "
        f"FROM unnest({text.arrays('int8')}) AS l(id) "
        f"WHERE NOT EXISTS (SELECT FROM @leases a WHERE a.id = l.id AND a.deadline > clock_timestamp())"
    )


def _puts(text: _Text) -> None:
    _put_rows(text, f"unnest({text.arrays('bytea', 'bytea')}) AS p(key, value)", "0::int8 AS lease")


def _leased_puts(text: _Text) -> None:
    _put_rows(text, f"unnest({text.arrays('bytea', 'bytea', 'int8')}) AS p(key, value, lease)", "p.lease")


def _put_rows(text: _Text, rows: str, lease: str) -> None:
    text.writes.append(
        f"put AS MATERIALIZED (SELECT p.key, p.value, {lease}, n.revision + 1 AS revision, "
        f"coalesce(e.create_revision, n.revision + 1) AS create_revision, coalesce(e.version, 0) + 1 AS version, "
        f"e.value AS before_value, e.create_revision AS before_create_revision, e.mod_revision AS before_mod_revision, "
        f"e.version AS before_version, e.lease AS before_lease "
        f"FROM {rows} CROSS JOIN now n LEFT JOIN @entries e ON e.key = p.key WHERE {text.condition})"
    )
    text.writes.append(
        "written AS (INSERT INTO @entries (key, value, create_revision, mod_revision, version, lease) "
        "SELECT key, value, create_revision, revision, version, lease FROM put "
        "ON CONFLICT (key) DO UPDATE SET value = excluded.value, mod_revision = excluded.mod_revision, "
        "version = excluded.version, lease = excluded.lease)"
    )
    text.changes.append(
        "SELECT revision, key, value, create_revision, version, lease, before_value, before_create_revision, "
        "before_mod_revision, before_version, before_lease FROM put"
    )


def _deletes(text: _Text) -> None:
    text.writes.append(
        f"gone AS (DELETE FROM @entries e USING unnest({text.arrays('bytea')}) AS d(key) "
        f"WHERE e.key = d.key AND {text.condition} RETURNING e.*)"
    )
    text.changes.append(_removed("gone"))


def _swept_ranges(text: _Text) -> None:
    text.writes.append(
        f"swept AS (DELETE FROM @entries e USING unnest({text.arrays('bytea', 'bytea')}) AS d(first, stop) "
        f"WHERE e.key >= d.first AND e.key < d.stop AND {text.condition} RETURNING e.*)"
    )
    text.changes.append(_removed("swept"))


def _removed(table: str) -> str:
    return (
        f"SELECT n.revision + 1, g.key, NULL::bytea, NULL::int8, NULL::int8, NULL::int8, g.value, g.create_revision, "
        f"g.mod_revision, g.version, g.lease FROM {table} g CROSS JOIN now n"
    )


_KINDS: Final[dict[str, Callable[[_Text], None]]] = {
    "keys": _keys,
    "ranges": _ranges,
    "leases": _leases,
    "put": _puts,
    "put_leased": _leased_puts,
    "delete": _deletes,
    "sweep": _swept_ranges,
}
_GUARDING: Final = frozenset({"keys", "ranges", "leases"})


def commit_text(kinds: Sequence[str], told: str) -> str:
    """Return the text for the kinds of guards and mutations, in the order of their parameters.

    It answers with at least one row: revision before, number of changes, -, and of each failure its kind, the position among
    the guards of its kind from 1, a key, the revision found. `told` is selected when something changed.
    """
    is_guarded = not _GUARDING.isdisjoint(kinds)
    text = _Text(condition="NOT EXISTS (SELECT FROM failed)" if is_guarded else "true")
    for kind in kinds:
        _KINDS[kind](text)
    tables = [f"now AS MATERIALIZED (SELECT {LAST_REVISION} AS revision)", *text.expected]
    failed = "SELECT 0::int8, 0::int8, ''::bytea, 0::int8 WHERE false"
    if is_guarded:
        tables.append(f"failed AS MATERIALIZED ({' UNION ALL '.join(text.failures)})")
        failed = "SELECT kind, position, key, actual FROM failed"
    tables += text.writes
    changed = "SELECT 0::int8 AS number, NULL::text AS told"
    if text.changes:
        tables.append(f"logged AS ({LOGGED}{' UNION ALL '.join(text.changes)} RETURNING revision)")
        changed = f"SELECT count(*) AS number, CASE WHEN count(*) > 0 THEN {told} END AS told FROM logged"
    return (
        f"WITH {', '.join(tables)} SELECT n.revision, c.number, c.told, f.kind, f.position, f.key, f.actual "
        f"FROM now n CROSS JOIN ({changed}) c LEFT JOIN ({failed}) AS f(kind, position, key, actual) ON true"
    )
