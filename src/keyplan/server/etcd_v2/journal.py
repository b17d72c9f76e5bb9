"""The event counter and the history, as one commit moves them on."""

from keyplan.server.etcd_v2.draft import Draft
from keyplan.server.etcd_v2.records import Action, EventRecord, State, event_key, pack
from keyplan.server.etcd_v2.rendering import Node, event_body

__all__ = ["HISTORY_EVENTS_DEFAULT", "Journal"]

HISTORY_EVENTS_DEFAULT = 1_000
"""etcd's own length; refreshes take places in it too."""


class Journal:
    """Numbers events and writes them into a draft; the oldest make room."""

    def __init__(self, draft: Draft, state: State, *, now_nanoseconds: int, history_events: int) -> None:
        self._draft = draft
        self._state = state
        self.index = state.index
        self.now_nanoseconds = now_nanoseconds
        self._history_events = history_events
        self._cleared = state.cleared

    @property
    def next_index(self) -> int:
        """The number of the next event."""
        return self.index + 1

    def record(self, action: Action, node: Node, previous: Node | None) -> str:
        """Write an event for everybody who waits. Return its JSON."""
        is_end = action in {Action.DELETE, Action.EXPIRE} and node.is_directory
        body = self.count(action, node, previous)
        self._draft.put(event_key(self.index), pack(EventRecord(self.index, node.path, is_end, body)))
        return body

    def count(self, action: Action, node: Node, previous: Node | None) -> str:
        """Number an event that nobody is told of. Return its JSON."""
        self.index += 1
        for index in range(self._cleared + 1, self.index - self._history_events + 1):
            if index > 0:
                self._draft.remove(event_key(index))
            self._cleared = index
        return event_body(action, node, previous, self.now_nanoseconds)

    def state(self, *, settled: int, position: int) -> State:
        """Return where the counting stands after the draft."""
        return State(self.index, settled, position, self._state.floor, self._cleared)
