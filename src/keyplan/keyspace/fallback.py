"""Falling back: a default prefix where there is no registry, or one that is not open; and what is looked at ever after.

Every act on the registry writes the head of the audit log. So a handle without a key space of its own is guarded by that one
key: while it is as it was, nobody has registered anything. When it has changed, the registry is asked anew.
"""

from logging import getLogger
from typing import Final

from keyplan.engine import Engine, Entry, Snapshot
from keyplan.errors import (
    GenerationMismatchError,
    KeyplanError,
    KeySpaceApiUnavailableError,
    KeySpaceDeletedError,
    OwnerConflictError,
    PrefixConflictError,
    PrefixInUseError,
    PrefixMismatchError,
)
from keyplan.keyspace.fence import FenceGuard, again, refusal
from keyplan.keyspace.layout import KeySpaceRegistry
from keyplan.keyspace.records import State
from keyplan.keyspace.rows import key_of
from keyplan.keyspace.transactions import configuration_of, header_of, registry_in
from keyplan.layout import Only

__all__ = ["FallbackFence"]

_LOGGER: Final = getLogger("keyplan.keyspace")


class FallbackFence(FenceGuard):
    """The guard of a handle that uses an application's default prefix: the registry says nothing about it.

    Or it says that the prefix is this application's, by this name, and not open to applications: so it is while a store is
    upgraded, and a handle from before goes on, as long as that key space may be written to. Raises why the application may not
    fall back.
    """

    def __init__(self, engine: Engine, name: str, application: str, prefix: bytes) -> None:
        super().__init__(engine, key_of("audit_head", Only()))
        self._name = name
        self._application = application
        self._prefix = prefix
        self._generation = 0
        """Of the key space of the name, as far as the handle has followed it."""
        self._is_registered = False
        with engine.snapshot() as state:
            seen = registry_in(engine, state)
            if header_of(seen) is not None and configuration_of(seen).keyspace_api_enabled:
                problem = "the registry that was asked is not there, and the opened store has one that is open to applications"
                raise KeySpaceApiUnavailableError(name=name, problem=problem)
            record = seen.records.get(name)
            if record is not None:
                self._generation, self._is_registered = record.generation, record.state is not State.DELETED
            error = self.look_in(state)
        if error is not None:
            raise again(error)

    def on(self, engine: Engine) -> "FallbackFence":
        return FallbackFence(engine, self._name, self._application, self._prefix)

    def judged(self, found: Entry | None, state: Snapshot) -> KeyplanError | None:
        seen = registry_in(self._engine, state)
        return self._of_prefix(seen) or self._of_name(seen)

    def _of_prefix(self, seen: KeySpaceRegistry) -> KeyplanError | None:
        prefix = self._prefix
        for other in seen.holders.keys(starts_with=prefix[:1]):
            if not (other.startswith(prefix) or prefix.startswith(other)):
                continue
            holder = seen.holders.get(other)
            if holder is None or holder.name != self._name:
                facts = {"holder": holder.name} if holder is not None else {}
                if other == prefix:
                    return PrefixInUseError(prefix=prefix.hex(), **facts, **self._advice(seen, facts))
                return PrefixConflictError(prefix=prefix.hex(), other=other.hex(), **facts)
        return None

    def _advice(self, seen: KeySpaceRegistry, facts: dict[str, str]) -> dict[str, str]:
        record = seen.records.get(facts["holder"]) if facts else None
        if record is None or record.application != self._application:
            return {}
        return {"problem": f"it was registered for this application: open the key space {record.name!r} anew"}

    def _of_name(self, seen: KeySpaceRegistry) -> KeyplanError | None:
        name, record = self._name, seen.records.get(self._name)
        if record is None or record.state is State.DELETED:
            is_gone = self._is_registered or (record is not None and record.generation != self._generation)
            return KeySpaceDeletedError(name=name) if is_gone else None
        if record.application != self._application:
            return OwnerConflictError(name=name, application=self._application, owner=record.application)
        if record.prefix != self._prefix.hex():
            return PrefixMismatchError(name=name, prefix=record.prefix, default_prefix=self._prefix.hex())
        followed = self._generation if self._is_registered else self._generation + 1
        if record.generation != followed:
            # Why also for the same application: what was deleted in between was this handle's, and what is there is not.
            problem = "it was registered, deleted and registered again since it was opened: open it anew"
            return GenerationMismatchError(name=name, generation=followed, current=record.generation, problem=problem)
        error = refusal(name, record.generation, record)
        if self.may_read(error) and not self._is_registered:
            self._generation, self._is_registered = record.generation, True
            _LOGGER.warning(
                "key space %r is registered now; open it anew, so that deleting it waits for you and its quota counts",
                name,
            )
        return error
