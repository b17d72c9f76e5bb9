"""A HEPnOS server's operations on queues, as somebody may see them.

hepnos/queues/NAME/TYPE     how a grant spells a queue, as in prefix:hepnos/queues/; name and type percent-encoded
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Final

from keyplan.apps.hepnos.databases import Address
from keyplan.apps.hepnos.errors import MissingError
from keyplan.apps.hepnos.queue_operations import Done, Entered, Looked, QueueNames, QueueOperations, Settled
from keyplan.apps.hepnos.queue_records import HEPnOSQueues, Place, QueueKey, QueueRecords, Taken, missing
from keyplan.apps.hepnos.queues import StoredQueues
from keyplan.engine import Engine, Reach, open_engine
from keyplan.store import Store

__all__ = ["KeptQueues", "ServedQueues"]

_PLACE: Final = b"hepnos/queues/"


class KeptQueues:
    """The queues of a server's store, opened when they are first asked for."""

    def __init__(self, address: Address, around: Callable[[Engine], Engine]) -> None:
        """`around` puts an engine around that of the durable ones."""
        self._address = address
        self._around = around
        self._lock = Lock()
        self._opened: StoredQueues | None = None

    def opened(self) -> StoredQueues:
        """Return them. Raises InvalidInputError for a store that has none, and what opening an engine raises."""
        with self._lock:
            if self._opened is None:
                self._opened = StoredQueues(Store(self._around(self._address.queues())), Store(open_engine("memory:")))
            return self._opened

    def close(self) -> None:
        """Close them."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()


class ServedQueues(QueueOperations):
    """The operations, performed on the queues of which somebody may see something. `reach` is that of the server's store."""

    def __init__(self, kept: KeptQueues, reach: Callable[[], Reach], who: str = "") -> None:
        self._kept = kept
        self._reach = reach
        self.who = who

    def may_change(self, name: str, type: str) -> bool:  # noqa: A002  # Why: the document's word.
        """Tell whether they may change a queue."""
        stretch = self._reach().at(_granted(QueueKey(name, type)))
        return stretch is not None and stretch.write == ()

    @property
    def is_writable(self) -> bool:
        """True when they may write anything at all."""
        return self._reach().can_write

    def _is_seen(self, key: QueueKey) -> bool:
        return self._reach().at(_granted(key)) is not None

    def queue_names(self) -> QueueNames:
        return QueueNames([(key.name, key.type) for key in self._kept.opened().keys() if self._is_seen(key)])  # noqa: SIM118  # Why: no mapping.

    def create_queue(self, *, name: str, type: str, volatile: bool) -> Done:  # noqa: A002  # Why: as above.
        self._kept.opened().create(QueueKey(name, type), volatile=volatile)
        return Done()

    def destroy_queue(self, *, name: str, type: str) -> Done:  # noqa: A002  # Why: as above.
        self._kept.opened().destroy(QueueKey(name, type))
        return Done()

    def enter_queue(self, *, name: str, type: str, producer: str, lease_seconds: float) -> Entered:  # noqa: A002  # Why: as above.
        key = QueueKey(name, type)
        return Entered(self._home_of(key).enter(key, producer, lease_seconds))

    def leave_queue(self, *, name: str, type: str, producer: str, made_at: int) -> Done:  # noqa: A002  # Why: as above.
        key = QueueKey(name, type)
        with suppress(MissingError):  # Why: who closes a queue that was destroyed has nothing to close.
            self._home_of(key).leave(key, producer, made_at)
        return Done()

    def put_items(
        self,
        *,
        name: str,
        type: str,  # noqa: A002  # Why: as above.
        producer: str,
        made_at: int,
        lease_seconds: float,
        number: int,
        items: Sequence[bytes],
    ) -> Done:
        key = QueueKey(name, type)
        self._home_of(key).put(key, Place(producer, made_at, lease_seconds), number, items)
        return Done()

    def take_item(self, *, name: str, type: str, taker: str, lease_seconds: float) -> Taken:  # noqa: A002  # Why: as above.
        key = QueueKey(name, type)
        try:
            return self._home_of(key).take(key, taker, lease_seconds)
        except MissingError:
            return Taken()  # Why no failure: as in a store, there is nothing, and nothing more will come.

    def settle_item(self, *, name: str, type: str, number: int, taker: str, is_done: bool) -> Settled:  # noqa: A002  # Why: as above.
        key = QueueKey(name, type)
        try:
            return Settled(self._home_of(key).settle(key, number, taker, is_done=is_done))
        except MissingError:
            return Settled(is_own=False)

    def look_at_queue(self, *, name: str, type: str) -> Looked:  # noqa: A002  # Why: as above.
        key = QueueKey(name, type)
        if not self._is_seen(key):
            raise missing(key)
        return Looked(self._home_of(key).is_empty(key))

    def _home_of(self, key: QueueKey) -> QueueRecords:
        return self._kept.opened().home_of(key)


def _granted(key: QueueKey) -> bytes:
    """Return what a grant on a queue is compared with: its record's key, below another place."""
    raw_key = HEPnOSQueues.bound().tables["states"].keys.encode(key)
    return _PLACE + raw_key.removeprefix(HEPnOSQueues.bound().root + b"states/")
