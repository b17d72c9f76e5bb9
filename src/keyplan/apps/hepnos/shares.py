"""A HEPnOS store in a key space: `etcd://HOST:2379?keyspace=nova`. Each database is below a name of its own there.

    <prefix of the key space> events.0/ <key of the document>

The key space is fenced: when it is disabled, deleted or made anew, no database of it is read or written any more.
"""

from urllib.parse import unquote_plus

from keyplan.engine import Engine, PrefixedEngine, open_engine
from keyplan.errors import InvalidInputError
from keyplan.keyspace import SESSION_SECONDS_DEFAULT, open_for_care, open_key_space
from keyplan.store import Store

__all__ = ["keyspace_in", "share_of"]

_OPTION = "keyspace="
_APPLICATION = "hepnos"


def keyspace_in(url: str) -> tuple[str, str | None]:
    """Return a URL without its option for a key space, and what that says. Raises InvalidInputError when it stands twice."""
    address, _, query = url.partition("?")
    options = query.split("&") if query else []
    named = [option for option in options if option.startswith(_OPTION)]
    if not named:
        return url, None
    if len(named) > 1 or not named[0].removeprefix(_OPTION):
        raise InvalidInputError(source="keyspace", problem="a URL names one key space, as in ?keyspace=nova")
    others = [option for option in options if option not in named]
    own = "?".join((address, "&".join(others))) if others else address
    return own, unquote_plus(named[0].removeprefix(_OPTION))


def share_of(url: str, keyspace: str, name: str, *, create: bool, readonly: bool, has_session: bool) -> Engine:
    """Open one database of a store in a key space, which is made for HEPnOS where `create` says so and there is none.

    A deletion of the key space waits for the databases that have a session to be closed. One of another
    application is for reading. Raises KeySpaceNotFoundError, and what opening an engine raises.
    """
    engine = open_engine(url, create=create, readonly=readonly)
    try:
        if readonly:
            store: Store = open_for_care(engine, keyspace, is_reading=True)
        else:
            store = open_key_space(
                engine,
                keyspace,
                _APPLICATION,
                create_if_missing=create,
                closes_engine=True,
                session_seconds=SESSION_SECONDS_DEFAULT if has_session else None,
            )
    except BaseException:  # Why all: whoever is interrupted here has nothing to close it by.
        engine.close()
        raise
    return _Share(store, f"{name}/".encode())


class _Share(PrefixedEngine):
    """A database that closes the handle of the key space, and so ends its session."""

    def __init__(self, store: Store, prefix: bytes) -> None:
        super().__init__(store.engine, prefix)
        self._store = store

    def close(self) -> None:
        self._store.close()
