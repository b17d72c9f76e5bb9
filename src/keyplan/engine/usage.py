"""Who is at a store, and who else could be: seen from outside, without taking part."""

from typing import NamedTuple

from keyplan.engine.url import EngineUrl
from keyplan.errors import EngineOpenError

__all__ = ["ExposedFile", "StoreUser", "exposed_files", "store_users"]


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


def store_users(url: str) -> list[StoreUser]:
    """Return which other processes have a store open: who writes, who waits for it in order, who could, and who reads.

    Raises EngineOpenError, also for an engine that keeps no such list.
    """
    parsed = _lmdb_url(url)
    if parsed is None:
        raise EngineOpenError(url=EngineUrl.parse(url).text, problem="only lmdb:PATH tells who has it open")
    # Why here: the driver is imported by those who use it.
    from keyplan.engine.lmdb.usage import users_of  # noqa: PLC0415

    return users_of(parsed)


def exposed_files(url: str) -> list[ExposedFile]:
    """Return the files of a store that are open to others than its URL says. Empty for engines that have no files here."""
    parsed = _lmdb_url(url)
    if parsed is None:
        return []
    from keyplan.engine.lmdb.usage import exposed_files_of  # noqa: PLC0415

    return exposed_files_of(parsed)


def _lmdb_url(url: str) -> EngineUrl | None:
    parsed = EngineUrl.parse(url)
    return parsed if parsed.scheme == "lmdb" and "database" not in parsed.options else None
