"""etcd's transactions: compares, and the requests of the branch that they choose, nested ones too.

Requests and answers are records of the etcd table; requests were admitted (admission.py). Each function adds to Changes and
returns an answer that is filled in when the commit's revision is known.
"""

from collections.abc import Callable, Iterator
from operator import attrgetter, eq, gt, lt, ne
from typing import Any, Final

from keyplan.engine import Entry, KeyRange, Snapshot
from keyplan.grpc_status import GrpcStatus
from keyplan.protobuf import CompareResult, CompareTarget, SortOrder, SortTarget
from keyplan.server.etcd_v3.changes import Changes, beside_reserved
from keyplan.server.etcd_v3.failures import CallFailure, too_much_read
from keyplan.server.etcd_v3.messages import NEW_REVISION, RECORDS, key_value, range_of
from keyplan.server.reading import ReadAllowance

__all__ = ["Answer", "delete_range", "look", "put", "read_range", "transact"]

Request = Any
Answer = Callable[[int], Any]
"""Of the commit's revision, the answer without its header."""

_RESULTS: Final = {
    CompareResult.EQUAL: eq,
    CompareResult.GREATER: gt,
    CompareResult.LESS: lt,
    CompareResult.NOT_EQUAL: ne,
}
_NUMBERS: Final = {
    CompareTarget.VERSION: "version",
    CompareTarget.CREATE: "create_revision",
    CompareTarget.MOD: "mod_revision",
    CompareTarget.LEASE: "lease",
}
"""What is compared, by its name in an entry and in a compare."""

_SORTS: Final = {
    SortTarget.KEY: "key",
    SortTarget.VERSION: "version",
    SortTarget.CREATE: "create_revision",
    SortTarget.MOD: "mod_revision",
    SortTarget.VALUE: "value",
}


def _selected(request: Request) -> KeyRange:
    return range_of(request.key, request.range_end)


# ---- range ------------------------------------------------------------------------------------------------------------


def read_range(changes: Changes, request: Request) -> Answer:
    """Read one key or a range. Raises CallFailure for a revision other than the current one: others are not kept readable."""
    key_range = _selected(request)
    _check_revision(changes.revision, request.revision)
    if request.range_end:
        entries = changes.range(key_range)
    else:
        entry = changes.get(key_range.start)
        entries = [] if entry is None else [entry]
    count = len(entries)
    if request.count_only:
        return lambda _revision: RECORDS.RangeResponse(count=count)
    if request.limit > 0 and request.sort_order is SortOrder.NONE and not _has_bounds(request):
        # Why before they are sorted: so does etcd where no order is asked for, whatever they are sorted by.
        entries = entries[: request.limit + 1]
    # Why the next revision for what is written here: it is later than all that is there, whichever it will be.
    found = [(entry, _numbered(entry, changes.revision + 1)) for entry in entries]
    entries = [entry for entry, _ in _ordered([one for one in found if _is_wanted(one[1], request)], request)]
    has_more = 0 < request.limit < len(entries)
    if has_more:
        entries = entries[: request.limit]

    def answer(commit_revision: int) -> Any:
        kvs = [key_value(entry, commit_revision, has_value=not request.keys_only) for entry in entries]
        return RECORDS.RangeResponse(kvs=kvs, more=has_more, count=count)

    return answer


def look(snapshot: Snapshot, request: Request) -> Answer:
    """Read where nothing is written: no more entries than are shown, no values where only keys are. Raises CallFailure."""
    is_by_key = request.sort_target is SortTarget.KEY
    if not request.range_end or not is_by_key or _has_bounds(request):
        return read_range(Changes(snapshot), request)
    key_range = beside_reserved(_selected(request))
    _check_revision(snapshot.revision, request.revision)
    count, limit = snapshot.count(key_range), request.limit
    if request.count_only:
        return lambda _revision: RECORDS.RangeResponse(count=count)
    is_reverse = request.sort_order is SortOrder.DESCEND
    found = snapshot.scan(
        key_range, limit=limit if limit > 0 else None, reverse=is_reverse, keys_only=request.keys_only
    )
    taken = ReadAllowance(too_much_read).taken(found)
    kvs = [key_value(entry, snapshot.revision, has_value=not request.keys_only) for entry in taken]
    return lambda _revision: RECORDS.RangeResponse(kvs=kvs, more=0 < limit < count, count=count)


def _check_revision(current: int, asked: int) -> None:
    if asked > current:
        raise CallFailure(GrpcStatus.OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision")
    if 0 < asked < current:
        raise CallFailure(GrpcStatus.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted")


def _has_bounds(request: Request) -> bool:
    return bool(
        request.min_mod_revision
        or request.max_mod_revision
        or request.min_create_revision
        or request.max_create_revision
    )


def _is_wanted(entry: Entry, request: Request) -> bool:
    bounds = (
        (entry.mod_revision, request.min_mod_revision, request.max_mod_revision),
        (entry.create_revision, request.min_create_revision, request.max_create_revision),
    )
    return not any((least and found < least) or (most and found > most) for found, least, most in bounds)


def _numbered(entry: Entry, revision: int) -> Entry:
    """Return an entry as it is once it is committed in this revision, for what it is sorted and chosen by."""
    if entry.mod_revision != NEW_REVISION:
        return entry
    created = revision if entry.create_revision == NEW_REVISION else entry.create_revision
    return entry._replace(create_revision=created, mod_revision=revision)


def _ordered(entries: list[tuple[Entry, Entry]], request: Request) -> list[tuple[Entry, Entry]]:
    # Why: etcd sorts by what is asked for even without an order, unless that is the key, in whose order they are.
    if request.sort_order is SortOrder.NONE and request.sort_target is SortTarget.KEY:
        return entries
    is_reverse = request.sort_order is SortOrder.DESCEND
    sorted_by = attrgetter(_SORTS[request.sort_target])
    return sorted(entries, key=lambda one: sorted_by(one[1]), reverse=is_reverse)


# ---- writes -----------------------------------------------------------------------------------------------------------


def put(changes: Changes, request: Request) -> Answer:
    """Write a value, on a lease. Raises CallFailure when it keeps a value or lease of a key that is not there."""
    key, value, lease = request.key, request.value, request.lease
    keeps_value, keeps_lease = request.ignore_value, request.ignore_lease
    previous = changes.get(key) if request.prev_kv or keeps_value or keeps_lease else None
    if keeps_value or keeps_lease:
        if previous is None:
            raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: key not found")
        value = previous.value if keeps_value else value
        lease = previous.lease if keeps_lease else lease
    changes.put(key, value, lease)
    if request.prev_kv and previous is not None:
        shown = previous
        return lambda revision: RECORDS.PutResponse(prev_kv=key_value(shown, revision))
    return lambda _revision: RECORDS.PutResponse()


def delete_range(changes: Changes, request: Request) -> Answer:
    """Remove a key or a range. Raises CallFailure."""
    gone = changes.delete(_selected(request), shows_values=request.prev_kv)

    def answer(revision: int) -> Any:
        shown = [key_value(entry, revision) for entry in gone] if request.prev_kv else []
        return RECORDS.DeleteRangeResponse(deleted=len(gone), prev_kvs=shown)

    return answer


# ---- transactions -----------------------------------------------------------------------------------------------------

_REQUESTS: Final[dict[str, Callable[[Changes, Request], Answer]]] = {
    "range": read_range,
    "put": put,
    "delete_range": delete_range,
}


def transact(changes: Changes, request: Request) -> Answer:
    """Compare, and carry out one branch. Raises CallFailure; then nothing may be committed."""
    # Why all first: nested transactions compare what was there before, too, and not what the ones around them have written.
    return _transacted(changes, request, iter(list(_decided(changes, request))))


def _decided(changes: Changes, request: Request) -> Iterator[bool]:
    """Yield whether the compares hold, of this transaction and of those nested in the branch that is taken, in order."""
    # Why each of them: every compare is read, and so guarded, whatever the others say.
    held = [_holds(changes, compare) for compare in request.compare]
    has_succeeded = all(held)
    yield has_succeeded
    for operation in request.success if has_succeeded else request.failure:
        if operation.request_txn is not None:
            yield from _decided(changes, operation.request_txn)


def _transacted(changes: Changes, request: Request, decided: Iterator[bool]) -> Answer:
    has_succeeded = next(decided)
    branch = request.success if has_succeeded else request.failure
    answers = [_carried_out(changes, operation, decided) for operation in branch]

    def answer(revision: int) -> Any:
        responses = [RECORDS.ResponseOp(**{f"response_{name}": each(revision)}) for name, each in answers]
        return RECORDS.TxnResponse(succeeded=has_succeeded, responses=responses)

    return answer


def _carried_out(changes: Changes, operation: Request, decided: Iterator[bool]) -> tuple[str, Answer]:
    if operation.request_txn is not None:
        return "txn", _headed(_transacted(changes, operation.request_txn, decided), 0)
    for name, carry_out in _REQUESTS.items():
        request = getattr(operation, f"request_{name}")
        if request is not None:
            answer = carry_out(changes, request)
            return name, _headed(answer, None if changes.has_writes else changes.revision)
    raise AssertionError("an operation of no kind was admitted")


def _headed(answer: Answer, read_revision: int | None) -> Answer:
    """Return an answer that shows a revision: of the commit, once something was written; else of what was read."""

    def headed(revision: int) -> Any:
        response = answer(revision)
        shown = revision if read_revision is None else read_revision
        response.header = RECORDS.ResponseHeader(revision=shown)
        return response

    return headed


def _holds(changes: Changes, request: Request) -> bool:
    key_range = _selected(request)
    if request.range_end:
        found: list[Entry | None] = list(changes.range(key_range)) or [None]
    else:
        found = [changes.get(request.key)]
    compare = _RESULTS[request.result]
    if request.target is CompareTarget.VALUE:
        wanted_value = request.value or b""
        return all(entry is not None and compare(entry.value, wanted_value) for entry in found)
    name = _NUMBERS[request.target]
    wanted = getattr(request, name) or 0
    return all(compare(0 if entry is None else getattr(entry, name), wanted) for entry in found)
