"""What a failed call means: whether it may be tried again, and which of keyplan's errors it is."""

from enum import Enum
from typing import Final

from keyplan.engine.etcd.transport import TransportError
from keyplan.errors import EngineRefusedError

__all__ = ["COMPACTED", "FUTURE", "NAME", "WENT_BACK", "Verdict", "has_no_address", "refusal", "says", "verdict"]

NAME: Final = "etcd"
"""The engine's name in errors and in its profile."""

COMPACTED: Final = "required revision has been compacted"
FUTURE: Final = "required revision is a future revision"

WENT_BACK: Final = "the store went back to an older state, or another one took its place; read again"

_NOT_CARRIED_OUT: Final = (
    "etcdserver: no leader",  # refused at the door, because calls ask for a leader
    "etcdserver: too many requests",
    "etcdserver: rpc not supported for learner",
    "etcdserver: not capable",
    "raft proposal dropped",
)
"""What etcd says before it has proposed a write. Trap: its time-outs and `server stopped` come after, and tell nothing."""

_STALE_TOKEN: Final = ("invalid auth token", "revision of auth store is old")

_PERHAPS_CARRIED_OUT: Final = frozenset({
    "ABORTED", "CANCELLED", "DATA_LOSS", "DEADLINE_EXCEEDED", "INTERNAL", "UNAVAILABLE", "UNKNOWN",
})  # fmt: skip


_NO_ADDRESS: Final = (
    "Domain name not found",  # c-ares, gRPC's resolver
    "DNS server returned answer with no data",
    "Name or service not known",  # the system's, which gRPC can be told to ask
    "No address associated with hostname",
    "nodename nor servname provided",
)
"""What is said of a host's name that nobody knows. Why not every failed look-up: one of a name server that is down passes."""


class Verdict(Enum):
    """What may be done after a failure."""

    ELSEWHERE = "it was certainly not carried out: try again, best at another server"
    RENEW = "the token is too old; nothing was carried out: get another one and try again"
    UNKNOWN = "it may have been carried out: only what may be done twice is tried again"
    REFUSED = "the server will not: trying again is of no use; nothing was carried out"


def verdict(failure: TransportError) -> Verdict:
    """Judge a failure by its code and by what etcd says."""
    details = failure.details
    if failure.is_unsent or any(said in details for said in _NOT_CARRIED_OUT):
        return Verdict.ELSEWHERE
    if any(said in details for said in _STALE_TOKEN):
        return Verdict.RENEW
    return Verdict.UNKNOWN if failure.code in _PERHAPS_CARRIED_OUT else Verdict.REFUSED


def has_no_address(failure: TransportError) -> bool:
    """Tell whether the server's name does not resolve, and nobody was asked in vain: waiting is of no use then."""
    return any(said in failure.details for said in _NO_ADDRESS)


def refusal(failure: TransportError) -> EngineRefusedError:
    """Return the error for a refusal."""
    return EngineRefusedError(engine=NAME, problem=f"it says {failure.details or failure.code}")


def says(error: EngineRefusedError, text: str) -> bool:
    """Tell whether etcd refused with these words."""
    return text in str(error.facts["problem"])
