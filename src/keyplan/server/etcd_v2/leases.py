"""Leases for TTLs: keys written at about the same time for the same time share one, so that heartbeats share its cost."""

from typing import Final

from keyplan.engine import NO_LEASE, Clock, Engine, Lease

__all__ = ["SHARING_SECONDS", "LeasePool"]

SHARING_SECONDS: Final = 0.25
"""How long a lease takes more keys, and by how much it outlives a TTL at most. Why: etcd itself ends keys up to 0.5 s late."""

_PRUNE_AT: Final = 64


class LeasePool:
    """Grants leases and never renews one: it ends with the keys that were not written again.

    Why not one lease for each key: renewing it and writing the key are two commits, and many clients' writes share one here.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._granted: dict[int, tuple[Lease, float]] = {}

    def lease_for(self, ttl_seconds: int) -> int:
        """Return the id of a lease that lives at least `ttl_seconds` from now, and at most SHARING_SECONDS longer."""
        now = self._clock.monotonic()
        held = self._granted.get(ttl_seconds)
        if held is not None and now - held[1] < SHARING_SECONDS:
            return held[0].id
        if len(self._granted) >= _PRUNE_AT:
            self.forget()
        lease = self._engine.lease(ttl_seconds + SHARING_SECONDS)
        assert lease.id != NO_LEASE
        self._granted[ttl_seconds] = (lease, now)
        return lease.id

    def forget(self) -> None:
        """Grant new leases from now on."""
        self._granted.clear()
