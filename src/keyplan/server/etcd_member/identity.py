"""Who the store is as an etcd cluster: ids and a term that stay for the life of its data, whoever serves it."""

import secrets
from typing import Final

import msgspec

from keyplan.engine import Commit, Engine, KeyAbsent, Put
from keyplan.errors import CommitConflictError
from keyplan.server.etcd_member.reserved import IDENTITY_KEY

__all__ = ["CLUSTER_VERSION", "SERVER_VERSION", "Identity", "load_identity"]

SERVER_VERSION: Final = "3.4.23"
"""Whose behaviour the gateways have. Why: Patroni picks the paths below /v3 by it, and wants plain dotted integers."""

CLUSTER_VERSION: Final = "3.4.0"

_TERM: Final = 2
"""Why constant: Patroni takes an answer with a lower term for one of a stale node; a single etcd begins at 2."""


class Identity(msgspec.Struct, frozen=True, array_like=True):
    """The ids that every gateway on one store gives, and the term, which never goes down."""

    cluster_id: int
    member_id: int
    term: int

    @property
    def cluster_hex(self) -> str:
        """The cluster's id as etcd spells it in headers."""
        return f"{self.cluster_id:x}"

    @property
    def member_hex(self) -> str:
        """The member's id as etcd spells it in the v2 API."""
        return f"{self.member_id:x}"


def load_identity(engine: Engine) -> Identity:
    """Return the store's identity; the first gateway on a store draws it, and all others find it."""
    while True:
        with engine.snapshot() as snapshot:
            entry = snapshot.get(IDENTITY_KEY)
        if entry is not None:
            return msgspec.msgpack.decode(entry.value, type=Identity)
        # Why 63 bits and not zero: clients keep the ids in signed numbers.
        drawn = Identity(1 + secrets.randbits(62), 1 + secrets.randbits(62), _TERM)
        try:
            engine.commit(Commit((KeyAbsent(IDENTITY_KEY),), (Put(IDENTITY_KEY, msgspec.msgpack.encode(drawn)),)))
        except CommitConflictError:
            continue  # Why: another gateway was first; its identity is there now.
        return drawn
