"""What the tests of key spaces share: a small layout, raw access, and shorthands."""

import msgspec

from keyplan import Layout, Table
from keyplan.engine import ALL_KEYS, Capability, Commit, Engine, Put
from keyplan.keyspace import KeySpaces, Sweeper

__all__ = ["Item", "Shop", "names_of", "put_raw", "raw_content", "swept"]


class Item(msgspec.Struct, frozen=True):
    """A record."""

    note: str


class Shop(Layout, root="/shop/"):
    """One table of text keys."""

    items = Table("items/{item}", key=str, value=Item)


def put_raw(engine: Engine, *keys: bytes) -> None:
    """Write keys as an application does that knows nothing of key spaces."""
    engine.commit(Commit((), tuple(Put(key, b"raw") for key in keys)))


def raw_content(engine: Engine) -> dict[bytes, bytes]:
    """All that is stored outside the registry."""
    with engine.snapshot() as snapshot:
        return {entry.key: entry.value for entry in snapshot.scan(ALL_KEYS) if not entry.key.startswith(b"\x00")}


def names_of(registry: KeySpaces) -> list[str]:
    """The names of the key spaces in the order of the list."""
    return [keyspace.name for keyspace in registry.all()]


def swept(registry: KeySpaces, name: str) -> None:
    """Delete a key space and all of its data, now."""
    if Capability.LEASES not in registry.engine.profile.capabilities:
        registry.configure({"max-client-lease-seconds": 0})  # sessions cannot be seen, and are waited for so long
    registry.delete(name)
    Sweeper(registry, pause=_never).sweep(name)
    assert registry.get(name).delete_completed_at is not None


def _never(seconds: float) -> None:
    raise AssertionError(f"nobody asked for a rate, and it waits {seconds} s")
