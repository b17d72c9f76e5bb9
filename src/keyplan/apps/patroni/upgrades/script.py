"""What is run beside PostgreSQL for an upgrade, as texts for sh: one makes data of another version, one tries whether it can.

Both run as the node's user, by themselves: an agent that ends meanwhile leaves them to their end. What is made lies in a folder
of its own, and becomes the node's data in one step when it is whole.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from keyplan.apps.patroni.backups.archive import renewal

__all__ = [
    "MAKING_FILE",
    "PROBLEM_WORD",
    "Asked",
    "Versions",
    "checking_script",
    "making_script",
    "settings_text",
    "upgrading",
]

MAKING_FILE: Final = "upgrade.sh"
"""Beside a node's home: what makes its data of those of a node of another version."""
PROBLEM_WORD: Final = "PROBLEM: "
"""What a line begins with that says what stands in the way of an upgrade."""
_SOCKET_FOLDER_MAX: Final = 80
"""Why: the path of a socket is at most 107 bytes, and its name is the end of it."""
_CHECKSUMS_SINCE: Final = 18
"""The first version that makes checksums of pages unless it is told not to."""

_BEGINNING: Final = r"""
set -eu
umask 077
trap 'exit 1' HUP INT TERM
unset PGDATABASE PGHOST PGHOSTADDR PGOPTIONS PGPORT PGSERVICE PGUSER
# Why: a script of an agent that was killed may still be at work here.
exec 9>"$work.lock"
flock 9
# Why not again: Patroni is started again and again, a copy of large data takes hours, and writes wait meanwhile.
if [ -s "$failed" ]; then cat "$failed" >&2; exit 1; fi
told() { tail -n 8 "$work/said" | tr -cs '[:print:]' ' ' | tail -c 400; }
# Why these words: they are looked for in a node's log.
give_up() { printf 'FATAL:  %s: %s\n' "$1" "$(told)" | tee ${failed:+"$failed"} >&2; exit 1; }
for left in "$work/data" "$work/former"; do
    if [ -f "$left/postmaster.pid" ]; then "$programs/pg_ctl" -D "$left" -m immediate -w stop >/dev/null 2>&1 || true; fi
done
rm -rf "$work"
mkdir "$work"
cd "$work"
if [ "${#work}" -le SOCKET_FOLDER_MAX ]; then sockets=$work; else sockets=$(mktemp -d); fi
new_data() { # a data folder that fits the former one, whose first role is $1
    control=$("$former_programs/pg_controldata" -D "$former_data")
    value() { printf '%s\n' "$control" | sed -n "s/^$1: *//p"; }
    checksums=--data-checksums
    if [ "$(value 'Data page checksum version')" = 0 ]; then checksums=$no_checksums; fi
    "$programs/initdb" -D "$work/data" -U "$1" -A trust --encoding=UTF8 --locale=C --no-sync $checksums \
        --wal-segsize="$(($(value 'Bytes per WAL segment') / 1048576))" >"$work/said" 2>&1 || give_up initdb
    if [ -f "$former_data/postgresql.auto.conf" ]; then cp "$former_data/postgresql.auto.conf" "$work/data/"; fi
}
""".replace("SOCKET_FOLDER_MAX", str(_SOCKET_FOLDER_MAX))

_MAKING: Final = r"""
trap '[ "$sockets" = "$work" ] || rm -rf "$sockets"' EXIT
# Why a copy, whose files the new data are linked to: nothing writes to what the former cluster comes back with.
cp -aL "$former_data" "$work/former" 2>"$work/said" || give_up 'the former data cannot be copied'
rm -f "$work/former/postmaster.pid"
former_data=$work/former
# Why: an archive has one line, and nobody follows.
quiet="-c archive_command= -c synchronous_standby_names="
# Why alone: who has made the former data is found, and what a killed server has not carried out is, too.
owner=$(printf 'SELECT rolname FROM pg_authid WHERE oid = 10\n' |
    "$former_programs/postgres" --single $quiet -D "$former_data" template1 2>"$work/said" |
    sed -n 's/.*rolname = "\(.*\)"[[:space:]]*(typeid.*/\1/p')
[ -n "$owner" ] || give_up 'the former data cannot be read'
new_data "$owner"
printf 'local all all trust\n' >"$work/hba.conf"
"$programs/pg_upgrade" -b "$former_programs" -B "$programs" -d "$former_data" -D "$work/data" -U "$owner" -s "$sockets" --link \
    -o "-c hba_file='$work/hba.conf' -c ssl=off -c logging_collector=off $quiet" >"$work/said" 2>&1 || {
    # Why first: only so much of what is said is told.
    error=$(find "$work/data" -name 'pg_upgrade_*.log' -exec grep -ho '\(ERROR\|FATAL\): .*' {} + | tail -n 1)
    give_up "pg_upgrade${error:+: $error}"
}
if [ -d "$data" ]; then rmdir "$data"; fi
mv "$work/data" "$data"
sync "${data%/*}"
rm -rf "$work"
"""

_CHECKING: Final = r"""
trap '"$programs/pg_ctl" -D "$work/data" -m immediate -w stop >/dev/null 2>&1 || true; rm -rf "$work" "$sockets"' EXIT
found() { printf 'PROBLEM: %s\n' "$1"; }
# Why terse: a statement may hold a secret.
ask() {
    PGCONNECT_TIMEOUT=10 "$former_programs/psql" -XAtq -v ON_ERROR_STOP=1 -v VERBOSITY=terse \
        -h "$address" -p "$port" -U "$user" -d "$1" -c "$2" 2>"$work/said" </dev/null || give_up psql
}
ask postgres "$cluster_query" >"$work/problems"
ask postgres "SELECT datname FROM pg_database WHERE datallowconn" >"$work/databases"
while read -r database; do ask "$database" "$database_query" >>"$work/problems"; done <"$work/databases"
while read -r problem; do found "$problem"; done <"$work/problems"
owner=$(ask postgres 'SELECT rolname FROM pg_authid WHERE oid = 10')
quoted=$(ask postgres 'SELECT quote_ident(rolname) FROM pg_authid WHERE oid = 10')
new_data "$owner"
cat "$settings" >>"$work/data/postgresql.conf"
: >"$work/said"
"$programs/pg_ctl" -D "$work/data" -w -l "$work/said" -o "-c listen_addresses= -c unix_socket_directories='$sockets' \
-c port=50432 -c shared_buffers=32MB -c huge_pages=off -c archive_mode=off -c fsync=off \
-c dynamic_shared_memory_type=mmap -c logging_collector=off -c log_destination=stderr" start >/dev/null 2>&1 9>&- || {
    found "PostgreSQL $version does not start with the configuration, which \`configure\` or the cell changes: $(told)"
    exit 0
}
if [ -n "$with_schema" ]; then
    # Why a time: whoever changes a table for hours is told of, and not waited for.
    "$programs/pg_dumpall" -h "$address" -p "$port" -U "$user" -l postgres --schema-only --no-role-passwords \
        --lock-wait-timeout=30s \
        >"$work/schema" 2>"$work/said" || give_up pg_dumpall
    grep -vxF "CREATE ROLE $quoted;" "$work/schema" |
        "$programs/psql" -XAtq -v ON_ERROR_STOP=1 -v VERBOSITY=terse -h "$sockets" -p 50432 -U "$owner" -d postgres \
            >/dev/null 2>"$work/said" || found "PostgreSQL $version does not take the schema: $(told)"
fi
"$programs/pg_ctl" -D "$work/data" -m fast -w stop >/dev/null 2>&1
if [ -n "$with_archive" ]; then
    pgbackrest --config=/dev/null --stanza=trial --pg1-path="$work/data" --repo1-path="$work/repository" --no-online \
        --lock-path="$work/lock" --log-level-file=off --log-level-console=off --log-level-stderr=error \
        stanza-create >/dev/null 2>"$work/said" ||
        found "the cell's pgBackRest does not know PostgreSQL $version: install a newer one ($(told))"
fi
"""

# What `pg_upgrade` refuses of its own accord, and what it would lose without a word.
_CLUSTER_QUERY: Final = """
SELECT 'there are prepared transactions: commit them, or roll them back'
 WHERE EXISTS (SELECT FROM pg_prepared_xacts)
UNION ALL SELECT 'logical replication slots would be lost; drop them first: ' || string_agg(slot_name, ', ')
  FROM pg_replication_slots WHERE slot_type = 'logical' HAVING count(*) > 0
UNION ALL SELECT 'tablespaces would be those of both versions; move what is in them first: ' || string_agg(spcname, ', ')
  FROM pg_tablespace WHERE oid >= 16384 HAVING count(*) > 0
UNION ALL SELECT 'subscriptions would not know how far they are; drop them first: ' || string_agg(subname, ', ')
  FROM pg_subscription HAVING count(*) > 0
UNION ALL SELECT 'databases that take no connections cannot be read; allow them, or drop the databases: '
                 || string_agg(datname, ', ')
  FROM pg_database WHERE NOT datallowconn AND datname <> 'template0' HAVING count(*) > 0
UNION ALL SELECT 'template0 takes connections: ALTER DATABASE template0 ALLOW_CONNECTIONS false'
  FROM pg_database WHERE datallowconn AND datname = 'template0'
"""
_LOCALE_QUERY: Final = """
UNION ALL SELECT format('template0 is of locale %s and encoding %s, and before 16 a new one is of C and UTF8: upgrade to 16',
                        datcollate, pg_encoding_to_char(encoding))
  FROM pg_database WHERE datname = 'template0'
   AND (datcollate, datctype, pg_encoding_to_char(encoding)) IS DISTINCT FROM ('C', 'C', 'UTF8')
"""
"""Why: from 16 on `pg_upgrade` makes the new cluster's templates as those of the former one are."""
_LOCALES_SINCE: Final = 16
_DATABASE_QUERY: Final = """
WITH RECURSIVE types AS (
    SELECT t.oid FROM pg_type t JOIN pg_namespace n ON n.oid = typnamespace
     WHERE t.oid IN ('regcollation'::regtype, 'regconfig'::regtype, 'regdictionary'::regtype, 'regnamespace'::regtype,
                     'regoper'::regtype, 'regoperator'::regtype, 'regproc'::regtype, 'regprocedure'::regtype)
        OR t.oid = 'aclitem'::regtype AND current_setting('server_version_num')::int < 160000
        OR typtype = 'c' AND (t.oid < 16384 OR nspname = 'information_schema')
    UNION SELECT t.oid
      FROM types JOIN pg_type t ON typbasetype = types.oid AND typtype = 'd' OR typelem = types.oid AND typtype = 'b'
           OR typtype = 'c' AND EXISTS (
                  SELECT FROM pg_attribute WHERE attrelid = typrelid AND atttypid = types.oid AND NOT attisdropped)
           OR typtype = 'r' AND EXISTS (SELECT FROM pg_range WHERE rngtypid = t.oid AND rngsubtype = types.oid))
(SELECT format('%s.%s.%s is of type %s, which is not kept: change it first', current_database(), c.oid::regclass, attname,
               format_type(atttypid, NULL))
  FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = relnamespace
 WHERE relkind IN ('r', 'm', 'i') AND NOT attisdropped AND atttypid IN (SELECT oid FROM types)
   AND nspname NOT IN ('pg_catalog', 'information_schema') AND nspname !~ '^pg_(toast_)?temp_'
 LIMIT 10)
"""
_INHERITED_QUERY: Final = """
UNION ALL (SELECT format('%s.%s.%s may be null, and not where it is inherited from: SET NOT NULL first', current_database(),
                         ours.attrelid::regclass, ours.attname)
  FROM pg_inherits JOIN pg_attribute ours ON ours.attrelid = inhrelid
       JOIN pg_attribute above ON above.attrelid = inhparent AND above.attname = ours.attname
       JOIN pg_class c ON c.oid = inhrelid
 WHERE above.attnum > 0 AND above.attnotnull AND NOT ours.attnotnull AND relkind IN ('r', 'p')
 LIMIT 10)
"""
_INHERITED_SINCE: Final = 18


def upgrading(folder: Path, roles: Sequence[str]) -> dict[str, Any]:
    """Return how the first node of an upgraded cluster makes its data, for `bootstrap` of Patroni. `folder` is the node's.

    `roles` are whom the cluster's programs log in as.
    """
    command = shlex.join(["/bin/sh", str(folder / MAKING_FILE)])
    method = {"command": command, "no_params": True}
    return {"method": "upgrade", "upgrade": method, "post_bootstrap": renewal(roles)}


class Versions(NamedTuple):
    """The programs of the version that data are of, and those of the one that they are to be of, with its number."""

    former_programs: Path
    programs: Path
    version: str


def making_script(versions: Versions, *, former_data: Path, home: Path) -> str:
    """Return what makes the data of a node, below its home, of those of a node of another version, which stay as they are.

    Cut off, it can be run again. Where it fails it says why in a line that begins with FATAL, then and whenever it is run.
    """
    values = _values(versions, former_data, home / "upgrade")
    return _script({**values, "data": str(home / "data"), "failed": str(home / "upgrade.failed")}, _MAKING)


class Asked(NamedTuple):
    """Where a node's PostgreSQL answers, and as whom it is asked; its password is libpq's to find."""

    address: str
    port: int
    user: str


def checking_script(
    versions: Versions, asked: Asked, *, home: Path, settings: Path, has_schema: bool, has_archive: bool
) -> str:
    """Return what tries an upgrade of a node that runs: each line that begins with PROBLEM_WORD says what stands in the way.

    A server of the new version is started beside it, with the settings of a file. With `has_schema` it is given the schemas of
    all databases; with `has_archive` pgBackRest must know it.
    """
    values = {
        **_values(versions, home / "data", home / "upgrade-check"),
        **{name: str(value) for name, value in asked._asdict().items()},
        "failed": "",
        "settings": str(settings),
        "with_schema": "yes" * has_schema,
        "with_archive": "yes" * has_archive,
        "cluster_query": _CLUSTER_QUERY + (_LOCALE_QUERY if int(versions.version) < _LOCALES_SINCE else ""),
        "database_query": _DATABASE_QUERY + (_INHERITED_QUERY if int(versions.version) >= _INHERITED_SINCE else ""),
    }
    return _script(values, _CHECKING)


def settings_text(parameters: Mapping[str, str]) -> str:
    """Return parameters as lines of PostgreSQL's configuration."""
    quoted = {name: value.replace("\\", "\\\\").replace("'", "''") for name, value in parameters.items()}
    return "".join(f"{name} = '{value}'\n" for name, value in quoted.items())


def _values(versions: Versions, former_data: Path, work: Path) -> dict[str, str]:
    return {
        "former_programs": str(versions.former_programs),
        "programs": str(versions.programs),
        "version": versions.version,
        "no_checksums": "--no-data-checksums" if int(versions.version) >= _CHECKSUMS_SINCE else "",
        "former_data": str(former_data),
        "work": str(work),
    }


def _script(values: Mapping[str, str], body: str) -> str:
    given = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    return f"#!/bin/sh\n{given}{_BEGINNING}{body}"
