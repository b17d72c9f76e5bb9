"""What of a request is outside what its caller may reach, as far as the request alone tells. Pure."""

from collections.abc import Sequence
from typing import Any

from keyplan.engine import KeyRange, Reach
from keyplan.server.etcd_v3.changes import beside_reserved
from keyplan.server.etcd_v3.failures import CallFailure
from keyplan.server.etcd_v3.messages import range_of

__all__ = ["is_surely_denied"]

Request = Any


def is_surely_denied(attribute: str, request: Request, reach: Reach) -> bool:
    """Tell whether a change will be refused whatever is stored: it writes outside, or compares what may not be read.

    Of a transaction the branch that is carried out; where compares decide which, both. What is malformed is not denied.
    """
    match attribute:
        case "put":
            return not _may_write(reach, request.key, b"")
        case "delete_range":
            return not _may_write(reach, request.key, request.range_end)
        case "transact":
            return _is_transaction_denied(request, reach)
        case _:
            return False


def _is_transaction_denied(request: Request, reach: Reach) -> bool:
    if any(not _may_read(reach, one.key, one.range_end) for one in request.compare):
        return True
    branches = [request.success, request.failure] if request.compare else [request.success]
    return all(_is_any_denied(branch, reach) for branch in branches)


def _is_any_denied(branch: Sequence[Request], reach: Reach) -> bool:
    for one in branch:
        put, deletion, nested = one.request_put, one.request_delete_range, one.request_txn
        if (
            (put is not None and not _may_write(reach, put.key, b""))
            or (deletion is not None and not _may_write(reach, deletion.key, deletion.range_end))
            or (nested is not None and _is_transaction_denied(nested, reach))
        ):
            return True
    return False


def _may_read(reach: Reach, key: bytes, range_end: bytes) -> bool:
    found = _range(key, range_end)
    return found is None or reach.covering(found) is not None


def _may_write(reach: Reach, key: bytes, range_end: bytes) -> bool:
    found = _range(key, range_end)
    covering = None if found is None else reach.covering(found)
    return found is None or (covering is not None and all(stretch.write is not None for stretch in covering))


def _range(key: bytes, range_end: bytes) -> KeyRange | None:
    try:
        return beside_reserved(range_of(key, range_end))
    except CallFailure:
        return None
