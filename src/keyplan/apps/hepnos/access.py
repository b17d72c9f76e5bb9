"""The reads and writes of a HEPnOS store that all else is made of: raw keys and values of a kind, products by their ids.

OpenStore is this with batches, prefetchers and queues; handles hold that. DataStore is that with a root, which makes handles.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, Final, Protocol
from uuid import UUID

from keyplan.apps.hepnos.databases import Databases
from keyplan.apps.hepnos.errors import DeletedError
from keyplan.apps.hepnos.keys import Kind
from keyplan.apps.hepnos.product_id import ProductID
from keyplan.apps.hepnos.types import product_type, type_named
from keyplan.engine import Commit, DeleteRange, KeyRange
from keyplan.errors import EngineLimitError
from keyplan.ring import RingEngine
from keyplan.store import Backoff

__all__ = ["ProductSource", "StoreAccess", "Writer"]

_BELOW: Final = {Kind.RUN: (Kind.EVENT, Kind.SUBRUN), Kind.SUBRUN: (Kind.EVENT,), Kind.EVENT: ()}
"""What a container holds besides products; what is held is removed first."""


_REMOVED_AT_ONCE: Final = 50_000
"""Keys that a commit removes. Why: etcd and PostgreSQL take half a second for them, and 10 seconds end a call; nobody writes on
LMDB meanwhile."""


class Writer(Protocol):
    """Where writes go: the store, at once and durably; a batch; or an asynchronous engine."""

    def write(self, kind: Kind, raw_key: bytes, value: bytes, mode: str) -> None:
        """Write one key. Modes: "overwrite"; "new": what exists is left; "exist": only what exists is written."""
        ...


class ProductSource(Protocol):
    """Where products are loaded from instead of the store: a prefetcher, or a batch's preloaded products."""

    def raw_product(self, raw_key: bytes) -> bytes | None:
        """Return a product's stored bytes, or None."""
        ...


class StoreAccess:
    """The databases of an open store. Safe for use by several threads. Each write is durable when it returns."""

    def __init__(self, databases: Databases) -> None:
        self.databases = databases
        self.raw_product: Callable[[bytes], bytes | None] = databases.rings[Kind.PRODUCT].value
        """Returns a product's stored bytes by its raw key, or None. Why no method: it is called for each of many products."""
        self.key_bytes_max: dict[Kind, float] = {
            kind: inf if ring.profile.key_bytes_max is None else ring.profile.key_bytes_max
            for kind, ring in databases.rings.items()
        }

    def load_product(self, product: ProductID, type: Any = None) -> Any:  # noqa: A002  # Why: the word of the document.
        """Return a product by its id, or None; its type is the one that its id names unless given."""
        raw = self.raw_product(product.raw)
        if raw is None:
            return None
        return (type_named(product.type) if type is None else product_type(type)).decode(raw)

    def raw_value(self, kind: Kind, raw_key: bytes) -> bytes | None:
        """Return the value at a raw key of a kind, or None."""
        return self.databases.value(kind, raw_key)

    def write(self, kind: Kind, raw_key: bytes, value: bytes, mode: str) -> None:
        """Write one key, durably; see `Writer`."""
        self.check_key(kind, raw_key)
        self.databases.put(kind, self.databases.place(kind, raw_key), [raw_key], [value], mode=mode)

    def check_key(self, kind: Kind, raw_key: bytes) -> None:
        """Raise EngineLimitError for a key that the databases of the kind cannot hold, before it waits in a batch."""
        allowed = self.key_bytes_max[kind]
        if len(raw_key) > allowed:
            raise EngineLimitError(limit="key_bytes_max", allowed=allowed, actual=len(raw_key))

    def remove(self, kind: Kind, raw_key: bytes) -> bool:
        """Remove one key; return False when it was not there, or another has removed it meanwhile."""
        return Backoff().until_committed(partial(self.databases.remove, kind, raw_key))

    def remove_container(self, kind: Kind, raw_key: bytes) -> None:
        """Remove a run, subrun or event with all that it holds; what is held goes first, so that none is left without it."""
        for below in (Kind.PRODUCT, *_BELOW[kind]):
            self._remove_range(below, KeyRange.of_prefix(raw_key))
        self._remove_range(kind, KeyRange.of_key(raw_key))

    def remove_contents(self, uuid: UUID) -> None:
        """Remove the runs, subruns, events and products of a data set's UUID."""
        for kind in (Kind.PRODUCT, Kind.EVENT, Kind.SUBRUN, Kind.RUN):
            self._remove_range(kind, KeyRange.of_prefix(uuid.bytes))

    def _remove_range(self, kind: Kind, key_range: KeyRange) -> None:
        """Remove a range of all databases of a kind, of each in commits of a bounded size.

        The last one has the whole range: with it whoever writes in a data set that is deleted is told, and what was written
        before it is gone.
        """
        ring = self.databases.rings[kind]
        for number in range(len(ring.databases)):
            rest = key_range
            while (part := self._first_part(ring, number, rest)) is not None:
                ring.commit_in(number, Commit((), (DeleteRange(part),), ""))
                rest = KeyRange(part.end or b"", key_range.end)
            ring.commit_in(number, Commit((), (DeleteRange(key_range),), ""))

    @staticmethod
    def _first_part(ring: RingEngine, number: int, rest: KeyRange) -> KeyRange | None:
        """Return the range of the first keys, as many as go into one commit; None when there are no more than that."""
        # Why suppressed: of a data set whose deletion was interrupted here nothing is left, and that is told.
        with suppress(DeletedError), ring.open_snapshot(number) as snapshot:
            keys = list(snapshot.keys(rest, limit=_REMOVED_AT_ONCE + 1))
            if len(keys) > _REMOVED_AT_ONCE:
                return KeyRange(keys[0], keys[_REMOVED_AT_ONCE])
        return None
