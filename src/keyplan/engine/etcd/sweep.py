"""Whether a range was left alone between two revisions, found out by reading the changes of all keys.

For servers that answer a request for progress out of order. A store's every revision changes some key, so that the changes of
all keys tell for certain when a revision is reached, on every version. Values are sent along, which is why this is done for
short distances only.
"""

from typing import Final

from keyplan.engine.clock import SYSTEM_CLOCK
from keyplan.engine.etcd.client import FIRST_KEY, EtcdClient
from keyplan.engine.etcd.transport import TransportError, messages
from keyplan.engine.interface import KeyRange

__all__ = ["Sweep"]

_SECONDS_MAX: Final = 5.0


class Sweep:
    """The changes of all keys after one revision and up to another. Raises TransportError when no stream can be opened.

    `clean_until` is the revision up to which the range is known to be untouched; `expected` that of its first change, or 0.
    Both hold only if the history after `after` is still whole when the sweep has ended: who asked for it looks.
    """

    def __init__(self, client: EtcdClient, key_range: KeyRange, *, after: int, until: int) -> None:
        self._range = key_range
        self._until = until
        self._give_up_at = SYSTEM_CLOCK.monotonic() + _SECONDS_MAX
        self.after = after
        self.clean_until = after
        self.expected = 0
        _, self._stream = client.watch_stream()
        request = messages.WatchRequest()
        create = request.create_request
        create.key = create.range_end = FIRST_KEY  # from the first key on, without end
        create.start_revision = max(after, 1) + 1
        self._stream.send(request)

    def has_ended(self) -> bool:
        """Take in what has come; tell whether no more is needed, or none will come in time."""
        while (response := self._stream.receive(0)) is not None:
            if response.canceled:
                raise TransportError("CANCELLED", str(response.cancel_reason))
            touched = [event.kv.mod_revision for event in response.events if event.kv.key in self._range]
            if touched:
                self.expected = min(touched)
                self.clean_until = max(self.clean_until, self.expected - 1)
                return True
            seen = max((event.kv.mod_revision for event in response.events), default=0)
            self.clean_until = max(self.clean_until, seen)
            if self.clean_until >= self._until:
                return True
        return SYSTEM_CLOCK.monotonic() >= self._give_up_at

    def close(self) -> None:
        """End the stream."""
        self._stream.close()
