"""Who is at a store, and who else could be: seen from outside, without taking part."""

from typing import NamedTuple

__all__ = ["ExposedFile", "StoreUser"]


class StoreUser(NamedTuple):
    """A process that has a store open. `process` is 0 where it cannot be seen from here, in another container."""

    process: int
    activity: str
    """writing, waiting to write, open for writing, or reading."""
    since: float | None
    """Seconds since 1970, where it is known."""
    is_alive: bool
    """False for a reader that was killed. What it saw is kept from being used again until another process opens the store."""
    command: str
    """Its command line; empty where it cannot be seen."""


class ExposedFile(NamedTuple):
    """A file or folder of a store that others than its owner may read or write, more than the store's URL asks for."""

    path: str
    mode: int
    allowed: int

    @property
    def remedy(self) -> str:
        """The command that takes it back."""
        return f"chmod {self.allowed:04o} {self.path}"
