"""A lease's handle. The lease itself is in the file, and outlives it."""

from collections.abc import Callable

from keyplan.engine.lease import GrantedLease
from keyplan.engine.lmdb.environment import Environment

__all__ = ["LmdbLease"]


class LmdbLease(GrantedLease):
    """A handle on a living or dead lease.

    `check_open` raises when its engine was closed; `check_writable` also when that was opened for reading only.
    """

    def __init__(
        self,
        environment: Environment,
        lease: int,
        *,
        ttl_seconds: float,
        check_open: Callable[[], None],
        check_writable: Callable[[], None],
    ) -> None:
        super().__init__(lease, ttl_seconds)
        self._environment = environment
        self._check_open = check_open
        self._check_writable = check_writable
        environment.look_again_in(ttl_seconds)

    def keep_alive(self) -> float:
        """Start the lease's time again. Checked inside the write transaction, so that it cannot race its end."""
        self._check_writable()
        return self._environment.write(lambda target: target.keep_alive(self._id))

    def seconds_left(self) -> float:
        """Tell how long the lease still lives."""
        self._check_open()
        environment = self._environment
        return environment.living_lease(self._id).seconds_left(environment.options.clock)

    def revoke(self) -> None:
        """End the lease and delete its entries, now."""
        self._check_writable()
        self._environment.write(lambda target: target.end_lease(self._id))
