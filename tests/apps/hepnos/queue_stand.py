"""What tests of queues share: a queue of three items whose clock is moved by hand, and answers that are lost."""

from typing import Any, Final

from keyplan.apps import hepnos
from keyplan.apps.hepnos.queues import StoredQueues
from keyplan.engine import open_engine
from keyplan.errors import CommitOutcomeUnknownError
from keyplan.store import Store
from keyplan.testing.faults import FakeClock

__all__ = ["Cut", "queue_of_three"]

_LOST: Final = {"enter", "leave", "put", "take", "settle"}


def queue_of_three(clock: FakeClock) -> hepnos.Queues:
    """Return queues with one of three items, `q`."""
    store = Store(open_engine("memory:"))
    queues = hepnos.Queues(StoredQueues(store, Store(open_engine("memory:")), clock), clock)
    queues.create("q", int)
    with queues.open("q", int, mode="producer") as producer:
        for number in range(3):
            producer.put(number)
    return queues


class Cut:
    """Queues whose answers are lost, each after some seconds, so often."""

    def __init__(self, acts: Any, clock: FakeClock) -> None:
        self.acts, self.clock, self.lost = acts, clock, 0

    def __getattr__(self, name: str) -> Any:
        def act(*given: Any, **named: Any) -> Any:
            found = getattr(self.acts, name)(*given, **named)
            if name in _LOST and self.lost:
                self.lost -= 1
                self.clock.advance(20)
                raise CommitOutcomeUnknownError(engine="cut", problem="the answer was lost")
            return found

        return act
