"""Leases: granted and taken up by calls, renewed one at a time. Who renews them in the background is the store."""

import math
from collections.abc import Callable

from keyplan.engine.etcd.client import EtcdClient
from keyplan.engine.etcd.failures import says
from keyplan.engine.etcd.transport import (
    LEASE_GRANT,
    LEASE_KEEP_ALIVE,
    LEASE_REVOKE,
    LEASE_TIME_TO_LIVE,
    Message,
    messages,
)
from keyplan.engine.lease import GrantedLease
from keyplan.errors import EngineRefusedError, LeaseNotFoundError

__all__ = ["EtcdLease", "grant_lease", "granted_seconds"]


class EtcdLease(GrantedLease):
    """A lease by its id. `before_revoke` is called before entries are deleted."""

    def __init__(
        self, client: EtcdClient, lease: int, *, ttl_seconds: float, before_revoke: Callable[[], object]
    ) -> None:
        super().__init__(lease, ttl_seconds)
        self._client = client
        self._before_revoke = before_revoke

    def keep_alive(self) -> float:
        # Why not the whole time-out: an answer that comes when the lease is over is of no use, and another try may be.
        seconds = min(self._client.timeout_seconds, self._ttl_seconds / 3)
        request = messages.LeaseKeepAliveRequest(ID=self._id)
        answer = self._client.call(LEASE_KEEP_ALIVE, request, timeout_seconds=seconds)
        if answer.TTL <= 0:
            raise LeaseNotFoundError(lease=self._id)
        return float(answer.TTL)

    def seconds_left(self) -> float:
        answer = _time_to_live(self._client, self._id)
        # Why: around a change of leaders etcd says 292 years, its "for ever"; no lease has more than it was granted.
        return float(min(answer.TTL, answer.grantedTTL))

    def revoke(self) -> None:
        self._before_revoke()
        try:
            # Why tried again when the answer is lost: revoking what is gone is no change.
            self._client.call(LEASE_REVOKE, messages.LeaseRevokeRequest(ID=self._id))
        except EngineRefusedError as error:
            if not says(error, "lease not found"):
                raise


def grant_lease(client: EtcdClient, ttl_seconds: float) -> tuple[int, float]:
    """Grant a lease of at least so many seconds; return its id and its time.

    Tried again when the answer is lost: a lease that nobody knows of expires by itself.
    """
    answer = client.call(LEASE_GRANT, messages.LeaseGrantRequest(TTL=math.ceil(ttl_seconds)))
    return int(answer.ID), float(answer.TTL)


def granted_seconds(client: EtcdClient, lease: int) -> float:
    """Return the time that a living lease has from each keep-alive. Raises LeaseNotFoundError."""
    return float(_time_to_live(client, lease).grantedTTL)


def _time_to_live(client: EtcdClient, lease: int) -> Message:
    answer = client.call(LEASE_TIME_TO_LIVE, messages.LeaseTimeToLiveRequest(ID=lease))
    if answer.TTL < 0 or answer.grantedTTL <= 0:
        raise LeaseNotFoundError(lease=lease)
    return answer
