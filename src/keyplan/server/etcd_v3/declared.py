"""The calls of the JSON gateway, each declared: where it is, what its caller needs, what it changes.

The routes and the OpenAPI description are made of it. Requests are messages of etcd's table, as grpc-gateway reads them from
JSON: what is declared of them is that they are objects, and which of their fields say what a change is on (`subject_of`).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from keyplan.operations import (
    NOTHING,
    Act,
    BodyForm,
    Change,
    Contract,
    Need,
    Operation,
    needs_of,
    operation,
    prefix,
)

__all__ = ["CONTRACT", "NEEDS", "GatewayCalls", "changed_in"]

CONTRACT: Final = Contract("etcd-v3", always=(), other_failures={"description": "`error`, `message`, `code`."})

_FACTS: Final[dict[str, Any]] = {
    "answers": "The answer as grpc-gateway writes it.",
    "body": BodyForm(bytes, lambda _body: {}, dict, schema=dict[str, Any]),
}
_TO_READ: Final = Need(Act.READ, NOTHING)
_TO_WRITE_KEYS: Final = Need(Act.WRITE, prefix("keys"))
_TO_WRITE: Final = Need(Act.WRITE, NOTHING)
"""For what is the caller's own: their leases, and their history."""


class GatewayCalls:
    """The calls. What a caller may see and write of keys, their store says: a grant on the keys alone is needed."""

    @operation("POST", "/v3/kv/range", name="rangeEtcd", needs=_TO_READ, **_FACTS)
    def range(self) -> Any:
        """Read a key or a range."""
        raise NotImplementedError

    @operation("POST", "/v3/kv/put", name="putEtcd", needs=_TO_WRITE_KEYS, change=Change("put", "{keys}"), **_FACTS)
    def put(self, keys: str) -> Any:
        """Write a value."""
        raise NotImplementedError

    @operation(
        "POST",
        "/v3/kv/deleterange",
        name="deleteRangeEtcd",
        needs=_TO_WRITE_KEYS,
        change=Change("delete", "{keys}"),
        **_FACTS,
    )
    def delete_range(self, keys: str) -> Any:
        """Delete a key or a range."""
        raise NotImplementedError

    @operation(
        "POST",
        "/v3/kv/txn",
        name="transactEtcd",
        needs=_TO_WRITE_KEYS,
        change=Change("transact", "{keys}"),
        **_FACTS,
    )
    def transact(self, keys: str) -> Any:
        """Compare, and carry out one of two lists of requests."""
        raise NotImplementedError

    @operation(
        "POST",
        "/v3/kv/compaction",
        name="compactEtcd",
        needs=_TO_WRITE,
        change=Change("compact", "{revision}"),
        **_FACTS,
    )
    def compact(self, revision: int) -> Any:
        """Forget history."""
        raise NotImplementedError

    @operation(
        "POST",
        "/v3/lease/grant",
        name="grantEtcdLease",
        needs=_TO_WRITE,
        change=Change("grant lease", "{answer.ID}"),
        **_FACTS,
    )
    def grant(self) -> Any:
        """Grant a lease."""
        raise NotImplementedError

    @operation("POST", "/v3/lease/keepalive", name="keepEtcdLeaseAlive", needs=_TO_READ, **_FACTS)
    def keep_alive(self) -> Any:
        """Renew leases: nothing that is stored changes."""
        raise NotImplementedError

    @operation(
        "POST",
        "/v3/lease/revoke",
        name="revokeEtcdLease",
        needs=_TO_WRITE,
        change=Change("revoke lease", "{lease}"),
        **_FACTS,
    )
    def revoke(self, lease: int) -> Any:
        """End a lease."""
        raise NotImplementedError

    @operation("POST", "/v3/lease/timetolive", name="getEtcdLeaseTimeToLive", needs=_TO_READ, **_FACTS)
    def time_to_live(self) -> Any:
        """Tell how long a lease still lives."""
        raise NotImplementedError

    @operation("POST", "/v3/lease/leases", name="listEtcdLeases", needs=_TO_READ, **_FACTS)
    def leases(self) -> Any:
        """List the leases that live."""
        raise NotImplementedError

    @operation("POST", "/v3/watch", name="watchEtcd", needs=_TO_READ, **_FACTS)
    def watch(self) -> Any:
        """Follow changes."""
        raise NotImplementedError

    @operation("POST", "/v3/cluster/member/list", name="listEtcdGateways", needs=_TO_READ, **_FACTS)
    def members(self) -> Any:
        """List the gateways."""
        raise NotImplementedError

    @operation("POST", "/v3/maintenance/status", name="getEtcdStatus", needs=_TO_READ, **_FACTS)
    def status(self) -> Any:
        """Tell the version and the revision."""
        raise NotImplementedError

    @operation("POST", "/v3/auth/authenticate", name="authenticateEtcd", needs=_TO_READ, **_FACTS)
    def authenticate(self) -> Any:
        """Get a token for a password."""
        raise NotImplementedError


NEEDS: Final = needs_of(GatewayCalls)
"""What each needs, for `keyplan.access`."""


# ---- what a change is on ---------------------------------------------------------------------------------------------


def changed_in(declared: Operation, message: Any) -> Mapping[str, Any] | None:
    """Return the arguments of which the subject of a change is made; None for a message that changes nothing."""
    return None if declared.change is None else _ARGUMENTS[declared.attribute](message)


def _keys_of_transaction(message: Any) -> Mapping[str, Any] | None:
    keys = ",".join(dict.fromkeys(_written(message)))
    return {"keys": keys} if keys else None


def _written(message: Any) -> Iterator[str]:
    """Yield what both branches of a transaction write: which of them is carried out, the store decides."""
    for one in (*message.success, *message.failure):
        if one.request_put is not None:
            yield _text(one.request_put.key)
        elif one.request_delete_range is not None:
            yield _range(one.request_delete_range)
        elif one.request_txn is not None:
            yield from _written(one.request_txn)


def _range(message: Any) -> str:
    """One key; `first..end`, without the end; `first..` up to the last key."""
    if not message.range_end:
        return _text(message.key)
    return f"{_text(message.key)}..{_text(message.range_end) if message.range_end != _TO_THE_LAST else ''}"


_TO_THE_LAST: Final = b"\0"
"""What etcd takes for the end of a range that has none."""


def _text(key: bytes) -> str:
    """A key as text. Escaped is what could be taken for a byte, for two keys or for a range: no name looks like another."""
    escaped = key.replace(b"\\", b"\\\\").replace(b",", b"\\,").replace(b"..", b".\\.")
    return escaped.decode("utf-8", "backslashreplace")


_ARGUMENTS: Final[Mapping[str, Callable[[Any], Mapping[str, Any] | None]]] = {
    "put": lambda message: {"keys": _text(message.key)},
    "delete_range": lambda message: {"keys": _range(message)},
    "transact": _keys_of_transaction,
    "compact": lambda message: {"revision": message.revision},
    "grant": lambda _message: {},
    "revoke": lambda message: {"lease": message.ID},
}
