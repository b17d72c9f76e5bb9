"""A keeper of leases without a thread: nothing is renewed unless an actor does it."""

from collections.abc import Callable

from keyplan.engine import Clock, Engine
from keyplan.store import STORE_CLOSED, Keeper, Lease, LeaseSchedule

__all__ = ["StillKeeper"]


class StillKeeper(Keeper):
    """Knows the leases of one store. `renew` does what the thread of an ordinary keeper would."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._schedule = LeaseSchedule(engine, clock)
        self._leases: list[Lease] = []

    def keep(self, lease: Lease, *, is_resumed: bool) -> None:
        self._schedule.add(lease, is_resumed=is_resumed)
        self._leases.append(lease)

    def forget(self, lease: Lease) -> None:
        self._schedule.remove(lease)
        if lease in self._leases:
            self._leases.remove(lease)

    def tell(self, lease: Lease, on_loss: Callable[[Lease], object]) -> None:
        on_loss(lease)

    def renew(self) -> None:
        """Look at each lease once, whether or not it is due."""
        for lease in tuple(self._leases):
            self._schedule.look(lease)

    def close(self) -> None:
        leases, self._leases = self._leases, []
        self._schedule.take_all()
        for lease in leases:
            lease.lose(STORE_CLOSED)
