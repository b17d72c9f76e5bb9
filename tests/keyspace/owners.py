"""A key space whose owner changes, and every way to read it: for tests of handles that have not heard of it."""

from collections.abc import Callable
from typing import Any

from keyplan.engine import ALL_KEYS, Engine, MemoryEngine
from keyplan.errors import (
    GenerationMismatchError,
    KeySpaceDeletedError,
    KeySpaceDeletingError,
)
from keyplan.keyspace import (
    Founding,
    KeySpaces,
    KeySpaceStore,
    open_key_space,
)
from tests.keyspace.meanwhile import Meanwhile
from tests.keyspace.stores import Item, Shop, swept
from tests.store.engines import no_waiting

__all__ = [
    "FOREIGN", "GONE", "OWN", "READS", "Read", "hand_over", "opened", "owned", "registry_on", "undisturbed",
]  # fmt: skip

OWN, FOREIGN = Item("ours"), Item("theirs")
GONE = (KeySpaceDeletingError, KeySpaceDeletedError, GenerationMismatchError)

Read = Callable[[KeySpaceStore], object]


def registry_on(engine: Engine) -> KeySpaces:
    return KeySpaces(engine, founding=Founding(prefix_codec="uvarint", profile="none"), backoff=no_waiting())


def opened(engine: Engine, name: str = "orders", application: str = "shop", **options: object) -> KeySpaceStore:
    """Open a key space without a session: nobody tells the handle what becomes of it."""
    return open_key_space(engine, name, application, session_seconds=None, backoff=no_waiting(), **options)  # type: ignore[arg-type]  # Why: a shorthand


def owned(engine: Engine) -> KeySpaceStore:
    """A key space with one record, whose prefix is free again as soon as it is deleted; opened."""
    registry = registry_on(engine)
    registry.configure({"reuse-cooldown-seconds": 0})
    registry.ensure("orders", "shop")
    store = opened(engine)
    Shop(store).items.insert("1", OWN)
    return store


def hand_over(engine: Engine, name: str = "bank") -> None:
    """Delete the key space with all its data, and give its prefix to another's, who writes at the same key."""
    swept(registry_on(engine), "orders")
    made = registry_on(engine).create(name, "bank", prefix="01")
    assert made.prefix == "01"
    with opened(engine, name, "bank") as store:
        Shop(store).items.insert("1", FOREIGN)


READS: dict[str, Read] = {
    "get": lambda store: Shop(store).items.get("1"),
    "versioned": lambda store: Shop(store).items.versioned("1"),
    "many": lambda store: Shop(store).items.get_many(["1", "2"]),
    "list": lambda store: list(Shop(store).items.list()),
    "reversed": lambda store: list(Shop(store).items.list(reverse=True)),
    "keys": lambda store: list(Shop(store).items.keys()),
    "count": lambda store: store.engine.snapshot().count(ALL_KEYS),
    "pairs": lambda store: list(store.engine.snapshot().pairs(ALL_KEYS)),
    "raw keys": lambda store: list(store.engine.snapshot().keys(ALL_KEYS)),
    "values": lambda store: store.engine.snapshot().values([b"/shop/items/1"]),
    "value": lambda store: store.engine.value(b"/shop/items/1"),
    "transaction": lambda store: store.run(lambda transaction: Shop(transaction).items.get("1")),
    "commit": lambda store: Shop(store).items.put("2", OWN),
}


def undisturbed(read: Read, begin: Callable[[Engine], object], **options: Any) -> tuple[object, int]:
    """Return what a read answers when nobody comes between, and how many calls it makes."""
    with MemoryEngine() as engine:
        begin(engine)
        around = Meanwhile(engine, None, lambda: None)
        store = opened(around, **options)
        around.begin(None)
        return read(store), around.calls
