"""A registry with everything in it that can be damaged, made once and copied."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from keyplan.engine import SYSTEM_CLOCK, Engine, KeyRange, MemoryEngine
from keyplan.keyspace import Founding, KeySpaces
from keyplan.testing.faults import FakeClock
from tests.keyspace.stores import put_raw, swept

__all__ = ["ENTRIES", "furniture", "registry_of"]


def registry_on(engine: Engine) -> KeySpaces:
    return KeySpaces(
        engine, clock=FakeClock(), founding=Founding(prefix_codec="ordered", profile="etcd", skip_printable=False)
    )


def furnished(engine: Engine) -> KeySpaces:
    """Key spaces in every state and of every kind of prefix, with marks, history, a quota, a usage and changed switches."""
    registry = registry_on(engine)
    for name in ("orders", "users", "old", "tmp", "again"):
        registry.create(name, "app", description=f"all {name}")
    registry.configure({"reservations": ["7F"], "protected": ["orders"], "max-client-lease-seconds": 0})
    registry.configure({"reuse-cooldown-seconds": None, "self-registration-enabled": False})
    put_raw(engine, b"\x01a", b"\x02b", b"\x04c", b"/runm/d")
    registry.disable("users")
    registry.update("users", "those who buy")
    registry.adopt("runm", "app", b"/runm/".hex(), allow_legacy_prefix=True)
    swept(registry, "old")
    swept(registry, "again")
    registry.create("again", "another")
    registry.begin_overwrite("again", application="third")
    registry.finish_restore("again", 3)
    registry.set_quota("orders", keys=100, bytes=10**6)
    registry.usage("orders")
    registry.configure({"delete-grace-seconds": 7 * 86_400})
    registry.delete("tmp")
    return registry


def registry_of(engine: Engine) -> dict[bytes, bytes]:
    with engine.snapshot() as snapshot:
        return {entry.key: entry.value for entry in snapshot.scan(KeyRange.of_prefix(b"\x00kp"))}


with MemoryEngine() as _engine:
    furnished(_engine)
    ENTRIES: Final = sorted(registry_of(_engine))
    _FURNISHED: Final = _engine.memory.copy(SYSTEM_CLOCK)


@contextmanager
def furniture() -> Iterator[tuple[Engine, KeySpaces]]:
    """A copy of what is furnished. Why: to make it takes four times as long as to damage and repair it."""
    with MemoryEngine(shared=_FURNISHED.copy(SYSTEM_CLOCK)) as engine:
        yield engine, registry_on(engine)
