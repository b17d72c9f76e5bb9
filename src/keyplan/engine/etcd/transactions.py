"""A commit as etcd's compare/then/else, and what the else branch has read as failed guards. Pure: nothing is sent from here.

    guard             compares                                            the else branch reads
    KeyAbsent         create revision = 0                                 the key
    KeyUnchanged      mod revision = r (a revision of 0: never true)      the key
    RangeEmpty        create revision = 0, for every key of the range     its first key
    RangeUnchanged    mod revision < r + 1, for every key of the range,   as many keys as were read, and one more
                      and for each key read: create revision > 0

A ranged compare holds when it holds for each key that is there, and for a range without keys when it holds for zero. So the one
of RangeUnchanged finds updates and newcomers, which were written after r, and says nothing about deletes: for them each key
that was read must still be there. A key deleted and written again is a newcomer.
"""

from collections.abc import Iterable
from typing import Final

from keyplan.engine.etcd.ranges import etcd_range
from keyplan.engine.etcd.transport import Message, messages
from keyplan.engine.fences import Fences
from keyplan.engine.guards import first_difference
from keyplan.engine.interface import (
    Commit,
    Delete,
    Entry,
    FailedGuard,
    Guard,
    KeyAbsent,
    KeyUnchanged,
    Put,
    RangeEmpty,
    RangeUnchanged,
)
from keyplan.protobuf import CompareResult, CompareTarget

__all__ = ["entry_of", "failed_guards", "fenced_read", "has_changed", "transaction_of"]

# Why plain numbers: protobuf takes them faster than members.
_EQUAL: Final = CompareResult.EQUAL.value
_LESS: Final = CompareResult.LESS.value
_GREATER: Final = CompareResult.GREATER.value
_CREATE: Final = CompareTarget.CREATE.value
_MOD: Final = CompareTarget.MOD.value
_VALUE: Final = CompareTarget.VALUE.value


def transaction_of(commit: Commit) -> Message:
    """Return the request that carries out `commit`."""
    request = messages.TxnRequest()
    for guard in commit.guards:
        _add_guard(request, guard)
    add = request.success.add
    for mutation in commit.mutations:
        if isinstance(mutation, Put):
            put = add().request_put
            put.key = mutation.key
            # Why set even when empty: it also makes the put the operation's choice.
            put.value = mutation.value
            if mutation.lease:
                put.lease = mutation.lease
        elif isinstance(mutation, Delete):
            add().request_delete_range.key = mutation.key
        else:
            limits = etcd_range(mutation.range)
            if limits is not None:
                deleted = add().request_delete_range
                deleted.key, deleted.range_end = limits
    return request


def fenced_read(key: bytes | None, fences: Fences) -> Message:
    """Return the request that reads a key, or nothing, in the state in which fences hold. There must be a fence."""
    request = messages.TxnRequest()
    for fence, value in fences:
        if value is None:
            request.compare.add(result=_EQUAL, target=_CREATE, key=fence, create_revision=0)
        else:
            request.compare.add(result=_EQUAL, target=_VALUE, key=fence, value=value)
    read = request.success.add().request_range
    # Trap: a transaction that reads nothing is answered by any server from what it has, agreed upon or not.
    read.key, read.count_only = (fences[0][0], True) if key is None else (key, False)
    return request


def _add_guard(request: Message, guard: Guard) -> None:
    if isinstance(guard, KeyAbsent):
        request.compare.add(result=_EQUAL, target=_CREATE, key=guard.key, create_revision=0)
        read = request.failure.add().request_range
        read.key, read.keys_only = guard.key, True
    elif isinstance(guard, KeyUnchanged):
        # Trap: etcd takes an absent key's mod revision for 0, so that a guard for revision 0 would hold.
        request.compare.add(result=_EQUAL, target=_MOD, key=guard.key, mod_revision=guard.revision or -1)
        read = request.failure.add().request_range
        read.key, read.keys_only = guard.key, True
    else:
        _add_range_guard(request, guard)


def _add_range_guard(request: Message, guard: RangeEmpty | RangeUnchanged) -> None:
    limits = etcd_range(guard.range)
    keys = guard.keys if isinstance(guard, RangeUnchanged) else ()
    if limits is not None:
        start, end = limits
        compare = request.compare.add(key=start, range_end=end)
        if isinstance(guard, RangeEmpty):
            compare.result, compare.target, compare.create_revision = _EQUAL, _CREATE, 0
        else:
            compare.result, compare.target = _LESS, _MOD
            compare.mod_revision = guard.revision + 1
        read = request.failure.add().request_range
        read.key, read.range_end, read.limit, read.keys_only = start, end, len(keys) + 1, True
    for key in keys:
        request.compare.add(result=_GREATER, target=_CREATE, key=key, create_revision=0)


def failed_guards(commit: Commit, response: Message) -> tuple[FailedGuard, ...]:
    """Return the guards that did not hold, from what the else branch read in the same instant."""
    reads = iter(response.responses)
    failures: list[FailedGuard] = []
    for guard in commit.guards:
        is_read = isinstance(guard, KeyAbsent | KeyUnchanged) or etcd_range(guard.range) is not None
        found = [entry_of(pair) for pair in next(reads).response_range.kvs] if is_read else []
        failure = _failure(guard, found)
        if failure is not None:
            failures.append(failure)
    return tuple(failures)


def _failure(guard: Guard, found: Iterable[Entry]) -> FailedGuard | None:
    if isinstance(guard, RangeUnchanged):
        return first_difference(guard, found)
    entry = next(iter(found), None)
    actual = 0 if entry is None else entry.mod_revision
    if isinstance(guard, KeyUnchanged):
        return None if entry is not None and actual == guard.revision else FailedGuard(guard, guard.key, actual)
    return None if entry is None else FailedGuard(guard, entry.key, actual)


def has_changed(commit: Commit, response: Message) -> bool:
    """Tell whether a commit that succeeded has written or removed a key."""
    return any(isinstance(mutation, Put) for mutation in commit.mutations) or any(
        answer.response_delete_range.deleted for answer in response.responses
    )


def entry_of(pair: Message) -> Entry:
    """Return etcd's key-value pair as an entry."""
    # Why: made without NamedTuple's own Python frames, because every entry of a list passes here.
    fields = (pair.key, pair.value, pair.create_revision, pair.mod_revision, pair.version, pair.lease)
    return tuple.__new__(Entry, fields)
