"""Databases of a HEPnOS server as engines: `hepnos.open("http://host:8210")` puts its whole API on them.

A read of up to 4,096 keys, and a page of a range, are of one state each. A range that is longer than a page is read page by
page: what is written meanwhile behind the last key that was read may be among what follows, as with HEPnOS itself.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, Final, Self

import msgspec

from keyplan.apps.hepnos.keys import Kind
from keyplan.apps.hepnos.operations import (
    Changes,
    Counted,
    Database,
    DatabaseOperations,
    Store,
    Written,
    digest_of,
)
from keyplan.apps.hepnos.packed import FINGERPRINT_BYTES, unpack
from keyplan.apps.hepnos.remote_frames import transport_to
from keyplan.apps.hepnos.remote_transport import ENGINE_NAME, Answer, Transport
from keyplan.engine import (
    NO_LEASE,
    Capability,
    Commit,
    Delete,
    Engine,
    Entry,
    Fences,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Lease,
    Lineage,
    Profile,
    Put,
    Snapshot,
    Watch,
    admit_commit,
    fingerprint,
)
from keyplan.errors import (
    EngineLimitError,
    EngineUnavailableError,
    InvalidInputError,
    KeyplanError,
    StoreMissingError,
    UnsupportedByEngineError,
)
from keyplan.operations import Operation, operations_of
from keyplan.ring import RING_KEY, ring_id

__all__ = ["RemoteDatabase", "RemoteServer"]

_PART_KEYS_MAX: Final = 65_536
_PART_BYTES_MAX: Final = 8 << 20
"""Why: a request of more is held in memory on both sides, and wins nothing."""
_PAGE_KEYS_FIRST: Final = 64
_PAGE_KEYS_MAX: Final = 16_384
"""Why growing pages: a short range is read in one small answer, a long one in few."""
_WHOLE_KEYS_MAX: Final = 4_096
"""Keys whose values are asked for as one answer. Why: they are of one state, and of so many held in memory on both sides."""
_REVISION: Final = 1
"""What the ring's description is said to be of: that it is unchanged, each request says by its digest."""


_OPERATIONS: Final = operations_of(DatabaseOperations)
_LIST_DATABASES: Final = _OPERATIONS["databases"]
_GET: Final = _OPERATIONS["get_values"]
_PAGE: Final = _OPERATIONS["page"]
_COUNT: Final = _OPERATIONS["count"]
_PUT: Final = _OPERATIONS["put"]
_COMMIT: Final = _OPERATIONS["commit"]


class RemoteServer:
    """A server and the databases that it has. Closed by the last of its databases."""

    def __init__(self, calls: Transport) -> None:
        self.calls = calls
        try:
            raw = self.calls.ask(_LIST_DATABASES, {}, "").body
            self._databases = msgspec.json.decode(raw, type=Store).databases
        except KeyplanError:
            self.calls.close()
            raise
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self.calls.close()
            raise EngineUnavailableError(engine=ENGINE_NAME, problem=f"{calls.url} is no HEPnOS server") from error

    @classmethod
    def at(cls, url: str, *, token: str | None = None) -> Self:
        """Return the server of a URL, which is asked in frames where it has them, else in HTTP."""
        return cls(transport_to(url, token=token))

    def database(self, kind: Kind, number: int) -> "RemoteDatabase":
        """Return one of the databases. Raises StoreMissingError."""
        known = self._databases.get(kind.value, [])
        if number >= len(known):
            problem = (
                f"the server has {len(known)} databases of {kind.value}; it makes them, or rebalances, where it is"
            )
            raise StoreMissingError(url=self.calls.url, problem=problem)
        return RemoteDatabase(self.calls, kind, number, known[number])


class RemoteDatabase(Engine):
    """One database. Every request names the ring that it was opened with, and is refused when that has changed."""

    def __init__(self, calls: Transport, kind: Kind, number: int, database: Database) -> None:
        self.description = database.description.encode()
        self._calls = calls
        self._kind, self._number = kind, number
        self._place: Mapping[str, Any] = {"kind": kind, "number": number}
        self._ring = digest_of(self.description)
        own = {Capability.DURABLE, Capability.SHARED}
        self._profile = Profile(
            name=ENGINE_NAME,
            # Why always shared: whoever reaches the server may open it.
            capabilities=frozenset(each for each in own if each.name.lower() in database.capabilities)
            | {Capability.SHARED},
            key_bytes_max=database.key_bytes_max,
            value_bytes_max=database.value_bytes_max,
            commit_operations_max=database.commit_operations_max,
            commit_bytes_max=database.commit_bytes_max,
        )
        self._read = calls.reader(kind, number, self._ring)
        self._seen_fences: Fences | None = None
        """Fences that were found to be of the ring that each request names."""
        self._is_closed = False

    @property
    def profile(self) -> Profile:
        return self._profile

    def lineage(self) -> Lineage:
        """Return the ring that the server named, and the database in it."""
        self._check_open()
        place = f"{_LIST_DATABASES.path}/{self._kind.value}/{self._number}"
        return Lineage(f"{ring_id(self.description)}/{place}", "")

    def snapshot(self) -> Snapshot:
        self._check_open()
        return _RemoteSnapshot(self)

    def fenced_value(self, key: bytes, fences: Fences) -> tuple[bool, bytes | None]:
        if fences is not self._seen_fences:
            if [fence for fence, _ in fences] != [RING_KEY]:
                return super().fenced_value(key, fences)
            if fences[0][1] != self.description:
                return False, None
            self._seen_fences = fences
        # Why one key: the ring is looked at by the server, with every request.
        return True, self.value_at(key)

    def value_at(self, key: bytes) -> bytes | None:
        """Return the value at a key of the database, or None."""
        if self._is_closed:
            self._check_open()
        return self._read(key)

    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value or None for each key; of many keys, each part of them as of one state."""
        if len(keys) > _WHOLE_KEYS_MAX:
            parts = self._ask_in_parts(_GET, {"keys": keys})
            if parts is not None:
                return list(chain.from_iterable(unpack(part.body, 1)[0] for part in parts))
        found: list[bytes | None] = unpack(self._ask(_GET, {"keys": keys}).body, 1)[0]
        return found

    def page(
        self, key_range: KeyRange, limit: int, *, reverse: bool, has_values: bool
    ) -> tuple[list[bytes], list[bytes], bool]:
        """Return the first keys of a range, their values where asked for, and whether there are more."""
        asked = {"key_range": key_range, "limit": limit, "reverse": reverse, "values": has_values}
        answer = self._ask(_PAGE, asked)
        return (*_columns(answer, has_values=has_values), answer.has_more)

    def pages(
        self, key_range: KeyRange, limit: int, *, reverse: bool, has_values: bool
    ) -> Iterator[tuple[list[bytes], list[bytes], bool]]:
        """Yield pages of a range, sent one after the other; none where each has to be asked for.

        The last says whether there are more all the same: a server sends none to who has not gone on for a minute.
        """
        asked = {"key_range": key_range, "limit": limit, "reverse": reverse, "values": has_values}
        for part in self._ask_in_parts(_PAGE, asked) or ():
            yield (*_columns(part, has_values=has_values), part.has_more)

    def count(self, key_range: KeyRange) -> int:
        """Return how many keys there are in a range."""
        return msgspec.json.decode(self._ask(_COUNT, {"key_range": key_range}).body, type=Counted).count

    def commit(self, commit: Commit) -> int:
        """Apply a commit; its guards may be on single keys."""
        admit_commit(self._profile, commit)
        guards = self._own_guards(commit.guards)
        absent = [guard.key for guard in guards if isinstance(guard, KeyAbsent)]
        unchanged = [guard for guard in guards if isinstance(guard, KeyUnchanged)]
        puts = [each for each in commit.mutations if isinstance(each, Put)]
        if any(put.lease != NO_LEASE for put in puts):
            raise self._unsupported(Capability.LEASES)
        removed = [each.key for each in commit.mutations if isinstance(each, Delete)]
        ranges = [each.range for each in commit.mutations if not isinstance(each, Put | Delete)]
        changes = Changes(
            absent=absent,
            keys=[put.key for put in puts],
            values=[put.value for put in puts],
            removed=removed,
            starts=[each.start for each in ranges],
            ends=[each.end for each in ranges],
            unchanged=[guard.key for guard in unchanged],
            fingerprints=[guard.revision.to_bytes(FINGERPRINT_BYTES) for guard in unchanged],
        )
        self._ask(_COMMIT, {"changes": changes})
        return 0

    def put_sorted(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes] | None = None,
        *,
        guards: Sequence[Guard] = (),
        overwrite: bool = True,
    ) -> int:
        if any(not isinstance(each, KeyUnchanged) or each.key != RING_KEY for each in guards):
            raise self._unsupported(Capability.REVISIONS)
        if values is not None and len(values) != len(keys):
            raise InvalidInputError(source="put_sorted", problem=f"{len(keys)} keys and {len(values)} values")
        for limit, allowed, given in (
            ("key_bytes_max", self._profile.key_bytes_max, keys),
            ("value_bytes_max", self._profile.value_bytes_max, values or ()),
        ):
            actual = max(map(len, given), default=0)
            if allowed is not None and actual > allowed:
                raise EngineLimitError(limit=limit, allowed=allowed, actual=actual)
        mode = "overwrite" if overwrite else "new"
        made = 0
        for begin, end in _parts(keys, values):
            part = () if values is None else values[begin:end]
            answer = self._ask(_PUT, {"keys": keys[begin:end], "values": part, "mode": mode})
            made += msgspec.json.decode(answer.body, type=Written).new
        return made

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        raise UnsupportedByEngineError(engine=ENGINE_NAME, capability="loading")

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        raise self._unsupported(Capability.WATCH)

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        raise self._unsupported(Capability.LEASES)

    def compact(self, revision: int) -> None:
        raise self._unsupported(Capability.REVISIONS)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._calls.close()

    def _ask(self, operation: Operation, arguments: Mapping[str, Any]) -> Answer:
        self._check_open()
        return self._calls.ask(operation, {**self._place, **arguments}, self._ring)

    def _ask_in_parts(self, operation: Operation, arguments: Mapping[str, Any]) -> Iterator[Answer] | None:
        self._check_open()
        return self._calls.ask_in_parts(operation, {**self._place, **arguments}, self._ring)

    def _own_guards(self, guards: Sequence[Guard]) -> list[Guard]:
        """Return the guards without that on the ring, which each request carries. Raises UnsupportedByEngineError."""
        others = [each for each in guards if not (isinstance(each, KeyUnchanged) and each.key == RING_KEY)]
        if not all(isinstance(each, KeyAbsent | KeyUnchanged) for each in others):
            raise self._unsupported(Capability.REVISIONS)
        return others

    def _unsupported(self, capability: Capability) -> UnsupportedByEngineError:
        return UnsupportedByEngineError(engine=ENGINE_NAME, capability=capability.value)

    def _check_open(self) -> None:
        if self._is_closed:
            raise EngineUnavailableError(engine=ENGINE_NAME, problem="the store was closed")


class _RemoteSnapshot(Snapshot):
    """Reads through the database that it is of; see the module's docstring for what is of one state."""

    def __init__(self, database: RemoteDatabase) -> None:
        self._database = database

    @property
    def revision(self) -> int:
        return 0

    def get(self, key: bytes) -> Entry | None:
        if key == RING_KEY:
            return Entry(key, self._database.description, 0, _REVISION, 0, NO_LEASE)
        value = self.value(key)
        return None if value is None else Entry(key, value, 0, fingerprint(value), 0, NO_LEASE)

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        if RING_KEY in keys:
            return super().get_many(keys)
        pairs = zip(keys, self.values(keys), strict=True)
        return [
            None if value is None else Entry(key, value, 0, fingerprint(value), 0, NO_LEASE) for key, value in pairs
        ]

    def value(self, key: bytes) -> bytes | None:
        return self._database.description if key == RING_KEY else self._database.value_at(key)

    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        parts = (self._database.values(keys[at : at + _PART_KEYS_MAX]) for at in range(0, len(keys), _PART_KEYS_MAX))
        return list(chain.from_iterable(parts))

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        if keys_only:
            return (Entry(key, b"", 0, 0, 0, NO_LEASE) for key in self.keys(key_range, limit=limit, reverse=reverse))
        pairs = self.pairs(key_range, limit=limit, reverse=reverse)
        return (Entry(key, value, 0, fingerprint(value), 0, NO_LEASE) for key, value in pairs)

    def keys(self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False) -> Iterator[bytes]:
        pages = self._pages(key_range, limit, reverse=reverse, has_values=False)
        return islice(chain.from_iterable(keys for keys, _ in pages), limit)

    def pairs(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        pages = self._pages(key_range, limit, reverse=reverse, has_values=True)
        strict_zip = partial(zip, strict=True)
        return islice(chain.from_iterable(strict_zip(keys, values) for keys, values in pages), limit)

    def _pages(
        self, key_range: KeyRange, limit: int | None, *, reverse: bool, has_values: bool
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        size = _PAGE_KEYS_FIRST if limit is None else min(max(limit, 1), _PAGE_KEYS_MAX)
        has_more = limit != 0 and not key_range.is_empty
        while has_more:
            keys, values, has_more = self._database.page(key_range, size, reverse=reverse, has_values=has_values)
            if keys:
                yield keys, values
                key_range = _behind(key_range, keys, reverse=reverse)
            size = min(size * 8, _PAGE_KEYS_MAX)
            if not has_more or limit is not None:
                continue
            # Why not the first page: most ranges end with it, and who looks for one key wants no more.
            pages = self._database.pages(key_range, _PAGE_KEYS_MAX, reverse=reverse, has_values=has_values)
            while (found := _next_of(pages)) is not None:
                keys, values, has_more = found
                if keys:
                    yield keys, values
                    key_range = _behind(key_range, keys, reverse=reverse)

    def count(self, key_range: KeyRange) -> int:
        return self._database.count(key_range)

    def close(self) -> None:
        return


def _behind(key_range: KeyRange, keys: Sequence[bytes], *, reverse: bool) -> KeyRange:
    return KeyRange(key_range.start, keys[-1]) if reverse else KeyRange(keys[-1] + b"\x00", key_range.end)


def _next_of(pages: Iterator[tuple[list[bytes], list[bytes], bool]]) -> tuple[list[bytes], list[bytes], bool] | None:
    """Return the next page; None also when the connection has ended meanwhile, since the rest is asked for on another."""
    try:
        return next(pages, None)
    except EngineUnavailableError:
        return None


def _columns(answer: Answer, *, has_values: bool) -> tuple[list[bytes], list[bytes]]:
    columns: list[Any] = unpack(answer.body, 1 + has_values)
    return columns[0], columns[1] if has_values else []


def _parts(keys: Sequence[bytes], values: Sequence[bytes] | None) -> Iterator[tuple[int, int]]:
    """Yield the parts that one request takes, by number and by bytes."""
    if values is None:
        yield from ((at, min(at + _PART_KEYS_MAX, len(keys))) for at in range(0, len(keys), _PART_KEYS_MAX))
        return
    begin = size = 0
    for at, value in enumerate(values):
        if at > begin and (at - begin >= _PART_KEYS_MAX or size + len(value) > _PART_BYTES_MAX):
            yield begin, at
            begin, size = at, 0
        size += len(value)
    if begin < len(keys):
        yield begin, len(keys)
