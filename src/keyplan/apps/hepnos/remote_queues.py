"""The queues of a HEPnOS server: what `StoredQueues` is, asked for over a network."""

from collections.abc import Mapping, Sequence
from threading import Event
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec

from keyplan.apps.hepnos.queue_operations import Entered, Looked, QueueNames, QueueOperations, Settled
from keyplan.apps.hepnos.queue_records import Place, QueueKey, Taken
from keyplan.apps.hepnos.remote_transport import Transport
from keyplan.operations import operations_of

__all__ = ["LOOK_SECONDS", "RemoteQueues"]

_OPERATIONS: Final = operations_of(QueueOperations)

LOOK_SECONDS: Final = 0.1
"""Why: who waits asks so often. A request that waits at the server would hold a thread there."""

T = TypeVar("T", bound=msgspec.Struct)


class RemoteQueues:
    """Queues of a server: their home, and what is done with each. Safe for use by several threads."""

    def __init__(self, calls: Transport) -> None:
        self._calls = calls

    def create(self, key: QueueKey, *, volatile: bool) -> None:
        """Create a queue; see `StoredQueues`."""
        self._ask("create_queue", key, volatile=volatile)

    def enter(self, key: QueueKey, producer: str, lease_seconds: float) -> "tuple[RemoteQueues, int]":
        """Open a queue; see `StoredQueues`."""
        raw = self._ask("enter_queue", key, producer=producer, lease_seconds=lease_seconds)
        return self, msgspec.json.decode(raw, type=Entered).made_at

    def destroy(self, key: QueueKey) -> None:
        """Remove a queue; see `StoredQueues`."""
        self._ask("destroy_queue", key)

    def keys(self) -> list[QueueKey]:
        """Return all queues of which the server shows something, sorted."""
        raw = self._calls.ask(_OPERATIONS["queue_names"], {}, "").body
        return [QueueKey(*key) for key in msgspec.json.decode(raw, type=QueueNames).queues]

    def leave(self, key: QueueKey, producer: str, made_at: int) -> None:
        """Close a queue as a producer; see `QueueRecords`, as of all that follows."""
        self._ask("leave_queue", key, producer=producer, made_at=made_at)

    def put(self, key: QueueKey, place: Place, number: int, items: Sequence[bytes]) -> None:
        """Add items. Raises CommitOutcomeUnknownError when the answer was lost: they may be in the queue."""
        self._ask("put_items", key, **place._asdict(), number=number, items=items)

    def take(self, key: QueueKey, taker: str, lease_seconds: float) -> Taken:
        """Take an item for a time."""
        return msgspec.json.decode(self._ask("take_item", key, taker=taker, lease_seconds=lease_seconds), type=Taken)

    def settle(self, key: QueueKey, number: int, taker: str, *, is_done: bool) -> bool:
        """Remove a taken item, or give it back."""
        raw = self._ask("settle_item", key, number=number, taker=taker, is_done=is_done)
        return msgspec.json.decode(raw, type=Settled).is_own

    def is_empty(self, key: QueueKey) -> bool:
        """Tell whether there is no item that nobody has taken."""
        return msgspec.json.decode(self._ask("look_at_queue", key), type=Looked).is_empty

    def waiting(self, key: QueueKey) -> "_Asking":
        """Return what waits between two looks, for a `with` block."""
        return _Asking()

    def close(self) -> None:
        """Close the connections."""
        self._calls.close()

    def _ask(self, name: str, key: QueueKey, **arguments: Any) -> bytes:
        given: Mapping[str, Any] = {**key._asdict(), **arguments}
        return self._calls.ask(_OPERATIONS[name], given, "").body


class _Asking:
    """Waits in its thread, for the next look: a server tells nobody of what comes."""

    def __init__(self) -> None:
        self._stirred = Event()

    def mark(self) -> None:
        """There is nothing to note."""

    def wait(self, seconds: float) -> None:
        """Wait for a moment, until it is time to ask again."""
        self._stirred.wait(min(seconds, LOOK_SECONDS))

    def stir(self) -> None:
        """End the wait."""
        self._stirred.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """There is nothing to end."""
