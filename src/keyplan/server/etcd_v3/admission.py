"""What etcd refuses of a request before it looks at the store: both branches of a transaction, whichever will be taken.

The rules, their order and their words are those of etcd 3.5 (`server/etcdserver/api/v3rpc/key.go`). Requests are records of the
etcd table. Every function raises CallFailure.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from keyplan.engine import KeyRange
from keyplan.grpc_status import GrpcStatus
from keyplan.server.etcd_v3.failures import CallFailure
from keyplan.server.etcd_v3.messages import range_of

__all__ = ["check_put", "check_selection", "check_transaction", "duplicate_key"]

Request = Any

_OPERATIONS_MAX: Final = 128
"""etcd's default of `--max-txn-ops`. A nested transaction has what the longest list of the one around it leaves."""

_DEPTH_MAX: Final = 20
"""Ours: each level is a few calls deep where it is carried out, answered and written as JSON."""


def duplicate_key() -> CallFailure:
    """Return the refusal of a transaction that writes a key twice."""
    return CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: duplicate key given in txn request")


def check_selection(request: Request) -> None:
    """Refuse a range, a deletion or a compare without a key."""
    range_of(request.key, request.range_end)


def check_put(request: Request) -> None:
    """Refuse a put without a key, and one that keeps the value or the lease and gives one."""
    if not request.key:
        raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: key is not provided")
    if request.ignore_value and request.value:
        raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: value is provided")
    if request.ignore_lease and request.lease:
        raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: lease is provided")


def check_transaction(request: Request) -> None:
    """Refuse a transaction with too many operations, with one that is refused by itself, or that writes a key twice.

    Two branches of one nested transaction may write the same key: only one of them is carried out. Deletions may overlap.
    """
    _check_operations(request, _OPERATIONS_MAX, depth=0)
    for branch in (request.success, request.failure):
        _written(branch)


def _check_operations(request: Request, operations_max: int, *, depth: int) -> None:
    if depth > _DEPTH_MAX:
        raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: transactions are nested too deeply")
    longest = max(map(len, (request.compare, request.success, request.failure)))
    if longest > operations_max:
        raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: too many operations in txn request")
    for compare in request.compare:
        check_selection(compare)
    for operation in (*request.success, *request.failure):
        if operation.request_txn is not None:
            _check_operations(operation.request_txn, operations_max - longest, depth=depth + 1)
        elif operation.request_put is not None:
            check_put(operation.request_put)
        elif (selection := operation.request_range or operation.request_delete_range) is not None:
            check_selection(selection)
        else:
            raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: key not found")


class _Deleted:
    """Ranges that are deleted, joined where they overlap, and whether a key is in one."""

    def __init__(self, ranges: Iterable[KeyRange]) -> None:
        self._starts: list[bytes] = []
        self._joined: list[KeyRange] = []
        for one in sorted(ranges, key=lambda each: each.start):
            self._add(one)

    def _add(self, one: KeyRange) -> None:
        if self._joined and self._joined[-1].end is None:
            return
        if self._joined and one.start <= (self._joined[-1].end or b""):
            last = self._joined[-1]
            end = None if one.end is None or last.end is None else max(last.end, one.end)
            self._joined[-1] = KeyRange(last.start, end)
            return
        self._starts.append(one.start)
        self._joined.append(one)

    def __contains__(self, key: bytes) -> bool:
        position = bisect_right(self._starts, key)
        return position > 0 and key in self._joined[position - 1]

    def __iter__(self) -> Iterator[KeyRange]:
        return iter(self._joined)


def _written(branch: Sequence[Request]) -> tuple[set[bytes], list[KeyRange]]:
    """Return the keys that a branch puts, and the ranges that it deletes, nested transactions included."""
    deletions = [one.request_delete_range for one in branch if one.request_delete_range is not None]
    # Why not `range_of`: etcd misses here that the end 00 means "to the last key", and admits what it then carries out.
    deleted = [KeyRange(one.key, one.range_end) if one.range_end else KeyRange.of_key(one.key) for one in deletions]
    puts: set[bytes] = set()
    for nested in (one.request_txn for one in branch if one.request_txn is not None):
        (taken, taken_deletes), (other, other_deletes) = _written(nested.success), _written(nested.failure)
        written = taken | other
        if not puts.isdisjoint(written) or _are_any_in(written, deleted):
            raise duplicate_key()
        puts |= written
        deleted += (*taken_deletes, *other_deletes)
    own = [one.request_put.key for one in branch if one.request_put is not None]
    if len(set(own)) < len(own) or not puts.isdisjoint(own) or _are_any_in(own, deleted):
        raise duplicate_key()
    puts.update(own)
    return puts, deleted


def _are_any_in(keys: Iterable[bytes], ranges: Sequence[KeyRange]) -> bool:
    if not ranges:
        return False
    deleted = _Deleted(ranges)
    return any(key in deleted for key in keys)
