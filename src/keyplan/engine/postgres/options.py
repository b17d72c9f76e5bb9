"""How a PostgreSQL store is reached and opened: from a URL, with libpq's PG* environment behind it; and what it may claim."""

import re
from dataclasses import dataclass, field
from typing import Final

from keyplan.engine.profile import Capability, Profile
from keyplan.engine.url import EngineUrl

__all__ = [
    "CONNECTIONS_DEFAULT",
    "HISTORY_REVISIONS_DEFAULT",
    "KEY_BYTES_MAX",
    "POSTGRES_PROFILE",
    "SCHEMA_DEFAULT",
    "TIMEOUT_SECONDS_DEFAULT",
    "VALUE_BYTES_MAX",
    "PostgresOptions",
    "options_of",
    "profile_of",
]

KEY_BYTES_MAX: Final = 2_600
"""Why: an entry of a B-tree index has at most 2,704 bytes, a third of a page; the history's has a revision beside the key."""

VALUE_BYTES_MAX: Final = 1 << 27
"""Why: an event carries a value twice, before and after, and PostgreSQL sends no row, and takes no statement, of a GiB."""

COMMIT_BYTES_MAX: Final = 1 << 28
"""Why: all values of a commit are one parameter of one statement, which PostgreSQL copies a few times."""

HISTORY_REVISIONS_DEFAULT: Final = 100_000
"""Why: a watch that is 100,000 commits behind lists faster than it replays."""

TIMEOUT_SECONDS_DEFAULT: Final = 10
CONNECTIONS_DEFAULT: Final = 10
"""Why: a server takes 100 connections in all unless it is told otherwise, and several processes share it."""

SCHEMA_DEFAULT: Final = "keyplan"

_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_$-]{0,49}")
_OWN: Final = frozenset({"connections", "create", "durability", "history", "notify", "readonly", "schema", "timeout"})
_LIBPQ: Final = frozenset({
    "application_name", "channel_binding", "dbname", "gssencmode", "host", "hostaddr", "krbsrvname", "load_balance_hosts",
    "passfile", "password", "port", "require_auth", "requirepeer", "service", "sslcert", "sslcrl", "sslkey", "sslmode",
    "ssl_min_protocol_version", "sslnegotiation", "sslpassword", "sslrootcert", "sslsni", "target_session_attrs", "user",
})  # fmt: skip
_HOST = re.compile(r"(\[[0-9A-Za-z:.%_-]+\]|[^\[\]:/,@\s]+)?(?::([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class PostgresOptions:
    """Where the server is, and how the store in it is opened. What is secret is in no `repr`.

    `connection` are libpq's keywords; what it lacks libpq takes from the PG* variables, ~/.pgpass and service files.
    `timeout_seconds` bounds a call with all its attempts. `connections_max` is how many snapshots may be read at once.
    `history_revisions_max` is how far a watch may look back. Without `is_durable`, commits are acknowledged before they are on
    disk. Without `has_notify`, commits tell nobody, and watches look again and again.
    """

    connection: dict[str, str] = field(default_factory=dict, repr=False)
    shown_url: str = "postgres:"
    schema: str = SCHEMA_DEFAULT
    create: bool = True
    is_readonly: bool = False
    is_durable: bool = True
    has_notify: bool = True
    timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT
    connections_max: int = CONNECTIONS_DEFAULT
    history_revisions_max: int = HISTORY_REVISIONS_DEFAULT


def options_of(url: EngineUrl) -> PostgresOptions:
    """Read `postgres://[user[:password]@][host[:port][,host...]][/database][?option=value&...]`.

    Options are those of `PostgresOptions` (schema, create, readonly, durability, notify, timeout, connections, history), and of
    libpq (sslmode, sslrootcert, ...). Raises EngineOpenError with what is wrong.
    """
    url.check_options(_OWN | _LIBPQ)
    connection = _connection(url)
    schema = url.options.get("schema", SCHEMA_DEFAULT)
    if _SCHEMA.fullmatch(schema) is None or schema.startswith("pg_"):
        problem = (
            "the option schema takes a name of at most 50 letters, digits, _, - and $ that does not begin with pg_"
        )
        raise url.refuse(problem)
    is_readonly = url.flag("readonly", default=False)
    if "," in connection.get("host", "") and not is_readonly:
        # Why: of several hosts, only the primary takes commits.
        connection.setdefault("target_session_attrs", "read-write")
    return PostgresOptions(
        connection=connection,
        shown_url=url.text,
        schema=schema,
        create=url.flag("create", default=True),
        is_readonly=is_readonly,
        is_durable=url.choice("durability", ["full", "none"], default="full") == "full",
        has_notify=url.flag("notify", default=True),
        timeout_seconds=url.number("timeout", default=TIMEOUT_SECONDS_DEFAULT, minimum=1),
        connections_max=url.number("connections", default=CONNECTIONS_DEFAULT, minimum=1),
        history_revisions_max=url.number("history", default=HISTORY_REVISIONS_DEFAULT, minimum=1),
    )


def _connection(url: EngineUrl) -> dict[str, str]:
    """Return libpq's keywords for the address and the options."""
    login, _, place = url.address.removeprefix("//").rpartition("@")
    hosts, _, database = place.partition("/")
    given: dict[str, str] = {"application_name": "keyplan"}
    if login:
        user, has_password, password = login.partition(":")
        given |= {"user": user} | ({"password": password} if has_password else {})
    if hosts:
        pairs = [_endpoint(url, host) for host in hosts.split(",")]
        given |= {"host": ",".join(host for host, _ in pairs), "port": ",".join(port for _, port in pairs)}
    if database:
        given["dbname"] = database
    for name in url.options.keys() & _LIBPQ:
        if name in given and name not in {"application_name", "host", "port"}:
            raise url.refuse(f"{name} is given twice: in the address, and as an option")
        given[name] = url.options[name]
    return {name: value for name, value in given.items() if value}


def _endpoint(url: EngineUrl, host: str) -> tuple[str, str]:
    match = _HOST.fullmatch(host)
    if match is None or int(match.group(2) or 0) > 65_535:
        example = "as in postgres://user@host:5432/database or postgres://host1,host2/database"
        raise url.refuse(f"a PostgreSQL URL names its hosts, {example}; {host!r} is none")
    return (match.group(1) or "").strip("[]"), match.group(2) or ""


def profile_of(options: PostgresOptions, *, is_flushed: bool = True) -> Profile:
    """Return what an engine opened like this can do. `is_flushed`: the server itself flushes what is committed."""
    capabilities = set(Capability)
    if not (options.is_durable and is_flushed):
        capabilities.discard(Capability.DURABLE)
    return Profile(
        name="postgres",
        capabilities=frozenset(capabilities),
        key_bytes_max=KEY_BYTES_MAX,
        value_bytes_max=VALUE_BYTES_MAX,
        commit_operations_max=None,
        commit_bytes_max=COMMIT_BYTES_MAX,
    )


POSTGRES_PROFILE: Final = profile_of(PostgresOptions())
"""What an engine opened without options can do."""
