"""What the handles of a lease have in common in every engine; what a lease is says `interface.Lease`."""

__all__ = ["GrantedLease"]


class GrantedLease:
    """A lease by its id, with the time that it has from each keep-alive. An engine's class adds the calls."""

    def __init__(self, lease: int, ttl_seconds: float) -> None:
        self._id = lease
        self._ttl_seconds = ttl_seconds

    @property
    def id(self) -> int:
        """The id that a put takes."""
        return self._id

    @property
    def ttl_seconds(self) -> float:
        """How long the lease lives after a keep-alive."""
        return self._ttl_seconds
