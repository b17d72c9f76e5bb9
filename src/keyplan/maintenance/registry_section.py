"""The registry of key spaces in a backup of all of them: which of its entries are kept, and what they become in a restore.

A registry comes back as it was: header, switches, names with their generations, places in the list and times, marks, history,
quotas and the audit log. Only that key spaces are RESTORING until their data is there, and those which had none are tombstones.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from typing import Any, Final

from msgspec import structs

from keyplan.engine import NO_LEASE, KeyRange, MemoryEngine, Snapshot
from keyplan.errors import CorruptionError, InvalidInputError, InvalidKeyError
from keyplan.keyspace import (
    Configuration,
    FaultKind,
    Fence,
    KeySpaceRecord,
    KeySpaceRegistry,
    KeySpaces,
    Mark,
    MarkKind,
    PrefixHolder,
    State,
)
from keyplan.layout import Only

__all__ = ["REGISTRY_ROOT", "RegistryKept", "refuse_unsound", "registry_pairs"]

REGISTRY_ROOT: Final = KeySpaceRegistry.bound().root

_NOT_KEPT: Final = ("sessions", "deletions", "usage", "sweeper", "leases", "floors")
"""They are about what is going on in one store: who has it open, how far a deletion is, what was counted when."""

_HARMLESS: Final = frozenset({FaultKind.AUDIT_BROKEN, FaultKind.STRAY_DATA})

_TABLES: Final = KeySpaceRegistry.bound().tables

_LOG: Final = ("audit", "audit_head")
"""They are streamed: a log may be of any length."""

ENTRIES_MAX: Final = 160_000
ENTRIES_BYTES_MAX: Final = 32 << 20
"""Why: what is no log is compared in memory before it is written, for which 256 MiB have to do; 40,000 key spaces fit."""

_VALUE_BYTES_MAX: Final = 1 << 20
"""Why: no act writes as much, and JSON becomes objects of many times its size."""


class _Room:
    """What is left of the room for a registry without its log. Writers and readers of backups ask it, so that they agree."""

    def __init__(self) -> None:
        self._entries = ENTRIES_MAX
        self._bytes = ENTRIES_BYTES_MAX

    def take(self, key: bytes, value: bytes) -> bool:
        """Take the room of an entry. Return False when there is none."""
        self._entries -= 1
        self._bytes -= len(key) + len(value)
        return self._entries >= 0 and self._bytes >= 0


_TOO_LARGE: Final = f"it has more than {ENTRIES_MAX} entries and {ENTRIES_BYTES_MAX >> 20} MiB beside its log"


def registry_pairs(snapshot: Snapshot) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries of the registry that a backup keeps, in key order, without the registry's root.

    Raises InvalidInputError for a registry that no restore would take.
    """
    left_out = [KeyRange(*_TABLES[name].keys.range(())) for name in _NOT_KEPT]
    logs = [KeyRange(*_TABLES[name].keys.range(())) for name in _LOG]
    room = _Room()
    for entry in snapshot.scan(KeyRange.of_prefix(REGISTRY_ROOT)):
        if entry.lease == NO_LEASE and not any(entry.key in area for area in left_out):
            key = entry.key[len(REGISTRY_ROOT) :]
            if not any(entry.key in area for area in logs) and not room.take(key, entry.value):
                advice = "back up the key spaces by their names, some in each file"
                raise InvalidInputError(source="registry", problem=_TOO_LARGE, advice=advice)
            yield key, entry.value


class RegistryKept:
    """A registry as a backup has it, read once for what its restore depends on. `at` is the time of the backup."""

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]], *, source: str, at: str) -> None:
        self._source = source
        self._at = at
        self.records: dict[str, KeySpaceRecord] = {}
        self.configuration = Configuration()
        room = _Room()
        for key, value in pairs:
            table, found, content = self._read(key, value)
            if table not in _LOG and not room.take(key, value):
                raise self._refused(f"{_TOO_LARGE}, which is what a restore compares in memory")
            if table == "records":
                self.records[found] = content
            elif table == "configuration":
                self.configuration = content
            # Why here: records come first, and neither the log nor a name that only it knows is kept in memory.
            elif table in ("audit", "history"):
                name = content.name if table == "audit" else found.name
                if name and name not in self.records:
                    raise self._refused(f"it is not sound: {name}: its record is lost")

    def live(self) -> list[KeySpaceRecord]:
        """Return the records of key spaces that come back with data."""
        return [record for record in self.records.values() if record.state in (State.ENABLED, State.DISABLED)]

    def written(self, pairs: Iterable[tuple[bytes, bytes]], *, until: str | None) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pairs as they are restored, without the switches, which open the registry: they are written last.

        until: when the prefixes of key spaces that had no data to be kept have cooled down.
        """
        marks = [
            (_key("marks", prefix), _value("marks", mark))
            for prefix, mark in sorted(self._freed(until), key=lambda item: item[0])
        ]
        return merge(self._kept(pairs), marks, key=lambda pair: pair[0])

    def _freed(self, until: str | None) -> Iterator[tuple[bytes, Mark]]:
        for record in self.records.values():
            if record.state in (State.DELETING, State.RESTORING):
                mark = Mark(kind=MarkKind.COOLING_DOWN, until=until, epoch=record.prefix_epoch)
                yield bytes.fromhex(record.prefix), mark

    def _kept(self, pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        change: dict[str, Callable[[Any, Any], Any]] = {
            "records": lambda _, record: self._coming(record),
            "fences": self._coming_fence,
            "holders": lambda _, holder: holder if self._is_live(holder) else None,
            "marks": lambda prefix, mark: mark if self._is_meant(prefix, mark) else None,
            "quotas": lambda name, quota: quota if self._is_live_name(name) else None,
            "configuration": lambda _key, _value: None,
        }
        for key, value in pairs:
            table, found, content = self._read(key, value)
            if table not in change:
                yield key, value
                continue
            now = change[table](found, content)
            if now is not None:
                yield key, _value(table, now)

    def _coming(self, record: KeySpaceRecord) -> KeySpaceRecord:
        if record.state in (State.ENABLED, State.DISABLED):
            return structs.replace(record, state=State.RESTORING)
        return structs.replace(
            record,
            state=State.DELETED,
            deleted_at=record.deleted_at or self._at,
            delete_completed_at=record.delete_completed_at or self._at,
        )

    def _coming_fence(self, name: str, fence: Fence) -> Fence:
        record = self.records.get(name)
        return fence if record is None else Fence(record.generation, self._coming(record).state, fence.cluster)

    def _is_live(self, holder: PrefixHolder) -> bool:
        return self._is_live_name(holder.name)

    def _is_meant(self, prefix: bytes, mark: Mark) -> bool:
        """Tell whether a mark stays: not that of a container whose last legacy key space is no more."""
        if mark.kind is not MarkKind.LEGACY_CONTAINER:
            return True
        inside = (bytes.fromhex(record.prefix) for record in self.live())
        return any(other.startswith(prefix) and other != prefix for other in inside)

    def _is_live_name(self, name: str) -> bool:
        record = self.records.get(name)
        return record is not None and record.state in (State.ENABLED, State.DISABLED)

    def _read(self, key: bytes, value: bytes) -> tuple[str, Any, Any]:
        """Return the table, key and value of a pair. Raises InvalidInputError for one that is no entry of a registry."""
        raw_key = REGISTRY_ROOT + key
        if len(value) > _VALUE_BYTES_MAX:
            raise self._refused(f"the entry {raw_key.hex()} has {len(value)} bytes: {_VALUE_BYTES_MAX} are allowed")
        for name, table in _TABLES.items():
            if name in _NOT_KEPT or raw_key not in KeyRange(*table.keys.range(())):
                continue
            try:
                return name, table.keys.decode(raw_key), table.form.decode(value)
            except (CorruptionError, InvalidKeyError) as error:
                raise self._refused(f"an entry of {name} cannot be read: {error.summary}") from error
        raise self._refused(f"{raw_key.hex()} is no key of a registry")

    def _refused(self, problem: str) -> InvalidInputError:
        advice = "name the key spaces to restore: then each comes back by its own record"
        return InvalidInputError(source=self._source, problem=f"the registry in it: {problem}", advice=advice)


def refuse_unsound(pairs: Iterable[tuple[bytes, bytes]], configuration: Configuration, *, source: str) -> None:
    """Put a registry together in memory, and let the doctor look at it. Raises InvalidInputError for one with a fault.

    Its log stays out: what it knows and nothing else does, `RegistryKept` has looked for.
    """
    switches = (_key("configuration", Only()), _value("configuration", configuration))
    log = [KeyRange(*_TABLES[name].keys.range(())) for name in _LOG]
    with MemoryEngine() as engine:
        whole = merge(pairs, [switches], key=lambda pair: pair[0])
        entries = ((REGISTRY_ROOT + key, value) for key, value in whole)
        engine.load((key, value) for key, value in entries if not any(key in area for area in log))
        faults = KeySpaces(engine).diagnose(with_unmanaged=False).faults
    for fault in faults:
        if fault.kind not in _HARMLESS:
            problem = f"the registry in it is not sound: {fault.name}: {fault.problem}"
            advice = "name the key spaces to restore: then each comes back by its own record"
            raise InvalidInputError(source=source, problem=problem, advice=advice)


def _key(table: str, key: object) -> bytes:
    return _TABLES[table].keys.encode(key)[len(REGISTRY_ROOT) :]


def _value(table: str, value: object) -> bytes:
    return _TABLES[table].form.encode(value)
