"""etcd's transactions: compares, and the requests of the branch that they choose, nested ones too.

Each function adds to Changes and returns an answer that is filled in when the commit's revision is known.
"""

from collections.abc import Callable
from operator import eq, gt, lt, ne
from typing import Any, Final

from keyplan.engine import Entry, KeyRange
from keyplan.grpc_status import GrpcStatus
from keyplan.server.etcd_v3.changes import Changes
from keyplan.server.etcd_v3.failures import CallFailure
from keyplan.server.etcd_v3.fields import Fields, key_value, range_of

__all__ = ["Answer", "delete_range", "put", "read_range", "transact"]

Answer = Callable[[int], dict[str, Any]]
"""Of the commit's revision, the answer without its header."""

_TARGETS: Final = ("VERSION", "CREATE", "MOD", "VALUE", "LEASE")
_RESULTS: Final = {"EQUAL": eq, "GREATER": gt, "LESS": lt, "NOT_EQUAL": ne}
_ORDERS: Final = ("NONE", "ASCEND", "DESCEND")
_SORTS: Final = ("KEY", "VERSION", "CREATE", "MOD", "VALUE")
_DEPTH_MAX: Final = 20
_OPERATIONS_MAX: Final = 128


def _selected(fields: Fields) -> KeyRange:
    return range_of(fields.octets("key"), fields.octets("range_end"))


# ---- range ------------------------------------------------------------------------------------------------------------


def read_range(changes: Changes, fields: Fields) -> Answer:
    """Read one key or a range. Raises CallFailure for a revision other than the current one: others are not kept readable."""
    key_range = _selected(fields)
    revision = fields.number("revision")
    if revision > changes.revision:
        raise CallFailure(GrpcStatus.OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision")
    if 0 < revision < changes.revision:
        raise CallFailure(GrpcStatus.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted")
    if fields.octets("range_end"):
        entries = changes.range(key_range)
    else:
        entry = changes.get(key_range.start)
        entries = [] if entry is None else [entry]
    count = len(entries)
    if fields.flag("count_only"):
        return lambda _revision: _counted({}, "count", count)
    entries = _ordered([entry for entry in entries if _is_wanted(entry, fields)], fields)
    limit = fields.number("limit")
    has_more = 0 < limit < len(entries)
    if has_more:
        entries = entries[:limit]
    has_value = not fields.flag("keys_only")

    def answer(commit_revision: int) -> dict[str, Any]:
        body: dict[str, Any] = {}
        if entries:
            body["kvs"] = [key_value(entry, commit_revision, has_value=has_value) for entry in entries]
        if has_more:
            body["more"] = True
        return _counted(body, "count", count)

    return answer


def _is_wanted(entry: Entry, fields: Fields) -> bool:
    for name, found in (("mod_revision", entry.mod_revision), ("create_revision", entry.create_revision)):
        least, most = fields.number(f"min_{name}"), fields.number(f"max_{name}")
        if (least and found < least) or (most and found > most):
            return False
    return True


def _ordered(entries: list[Entry], fields: Fields) -> list[Entry]:
    order, target = fields.choice("sort_order", _ORDERS), fields.choice("sort_target", _SORTS)
    # Why: etcd sorts by what is asked for even without an order, unless that is the key, in whose order they are.
    if order == "NONE" and target == "KEY":
        return entries
    keys: dict[str, Callable[[Entry], Any]] = {
        "KEY": lambda entry: entry.key,
        "VERSION": lambda entry: entry.version,
        "CREATE": lambda entry: entry.create_revision,
        "MOD": lambda entry: entry.mod_revision,
        "VALUE": lambda entry: entry.value,
    }
    return sorted(entries, key=keys[target], reverse=order == "DESCEND")


def _counted(body: dict[str, Any], name: str, count: int) -> dict[str, Any]:
    if count:
        body[name] = str(count)
    return body


# ---- writes -----------------------------------------------------------------------------------------------------------


def put(changes: Changes, fields: Fields) -> Answer:
    """Write a value, on a lease. Raises CallFailure."""
    key = fields.octets("key")
    value, lease = fields.octets("value"), fields.number("lease")
    if not key:
        raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: key is not provided")
    keeps_value, keeps_lease = fields.flag("ignore_value"), fields.flag("ignore_lease")
    if keeps_value and value:
        raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: value is provided")
    if keeps_lease and lease:
        raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: lease is provided")
    wants_previous = fields.flag("prev_kv")
    previous = changes.get(key) if wants_previous or keeps_value or keeps_lease else None
    if keeps_value or keeps_lease:
        if previous is None:
            raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: key not found")
        value = previous.value if keeps_value else value
        lease = previous.lease if keeps_lease else lease
    changes.put(key, value, lease)
    if wants_previous and previous is not None:
        shown = previous
        return lambda revision: {"prev_kv": key_value(shown, revision)}
    return lambda _revision: {}


def delete_range(changes: Changes, fields: Fields) -> Answer:
    """Remove a key or a range. Raises CallFailure."""
    gone = changes.delete(_selected(fields))
    wants_previous = fields.flag("prev_kv")

    def answer(revision: int) -> dict[str, Any]:
        body = _counted({}, "deleted", len(gone))
        if wants_previous and gone:
            body["prev_kvs"] = [key_value(entry, revision) for entry in gone]
        return body

    return answer


# ---- transactions -----------------------------------------------------------------------------------------------------

_REQUESTS: Final[dict[str, Callable[[Changes, Fields], Answer]]] = {
    "range": read_range,
    "put": put,
    "delete_range": delete_range,
}


def transact(changes: Changes, fields: Fields, depth: int = 0) -> Answer:
    """Compare, and carry out one branch. Raises CallFailure; then nothing may be committed."""
    compares, success, failure = (fields.messages(name) for name in ("compare", "success", "failure"))
    if max(map(len, (compares, success, failure))) > _OPERATIONS_MAX:
        raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: too many operations in txn request")
    if depth > _DEPTH_MAX:
        raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: transactions are nested too deeply")
    # Why all of them first: every compare is read, and so guarded, whatever the others say.
    held = [_holds(changes, compare) for compare in compares]
    has_succeeded = all(held)
    answers = [_request(changes, request, depth) for request in (success if has_succeeded else failure)]

    def answer(revision: int) -> dict[str, Any]:
        body: dict[str, Any] = {"succeeded": True} if has_succeeded else {}
        if answers:
            body["responses"] = [{f"response_{name}": each(revision)} for name, each in answers]
        return body

    return answer


def _request(changes: Changes, fields: Fields, depth: int) -> tuple[str, Answer]:
    nested = fields.message("request_txn")
    if nested is not None:
        within = transact(changes, nested, depth + 1)
        return "txn", lambda revision: {"header": {}} | within(revision)
    for name, carry_out in _REQUESTS.items():
        request = fields.message(f"request_{name}")
        if request is not None:
            return name, _headed(changes, carry_out(changes, request))
    raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: key not found")


def _headed(changes: Changes, answer: Answer) -> Answer:
    """Return an answer with the revision that it shows: of the commit, once something was written; else of what was read."""
    read_revision = None if changes.has_writes else changes.revision

    def headed(revision: int) -> dict[str, Any]:
        return {"header": {"revision": str(read_revision or revision)}} | answer(revision)

    return headed


def _holds(changes: Changes, fields: Fields) -> bool:
    key, range_end = fields.octets("key"), fields.octets("range_end")
    key_range = range_of(key, range_end)
    target = fields.choice("target", _TARGETS)
    if range_end:
        found: list[Entry | None] = list(changes.range(key_range)) or [None]
    else:
        found = [changes.get(key)]
    compare = _RESULTS[fields.choice("result", tuple(_RESULTS))]
    if target == "VALUE":
        wanted_value = fields.octets("value")
        return all(entry is not None and compare(entry.value, wanted_value) for entry in found)
    numbers: dict[str, tuple[str, Callable[[Entry], int]]] = {
        "VERSION": ("version", lambda entry: entry.version),
        "CREATE": ("create_revision", lambda entry: entry.create_revision),
        "MOD": ("mod_revision", lambda entry: entry.mod_revision),
        "LEASE": ("lease", lambda entry: entry.lease),
    }
    name, number_of = numbers[target]
    wanted = fields.number(name)
    return all(compare(0 if entry is None else number_of(entry), wanted) for entry in found)
