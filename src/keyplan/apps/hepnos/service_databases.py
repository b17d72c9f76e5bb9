"""A HEPnOS server's operations on its databases, as somebody may see them, whatever they are asked in.

HTTP comes in by `DatabasesResponder.respond`, frames by `carry_out`: both find the caller's databases, compare the ring,
and go on in the same methods.
"""

import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from keyplan.apps.hepnos.databases import Databases
from keyplan.apps.hepnos.errors import DeletedError
from keyplan.apps.hepnos.keys import Kind
from keyplan.apps.hepnos.operations import (
    COLUMNS_BYTES_MAX,
    MODES,
    MORE_HEADER,
    PAGE_KEYS_MAX,
    Changes,
    Columns,
    Counted,
    Database,
    DatabaseOperations,
    Store,
    Written,
    digest_of,
)
from keyplan.apps.hepnos.packed import PACKED, JoinedColumn, whole
from keyplan.apps.hepnos.queue_operations import Done, QueueOperations
from keyplan.apps.hepnos.service_callers import CallersDatabases
from keyplan.apps.hepnos.service_checks import check_pairs, check_ranges, check_removed, check_ring, unchanged_guards
from keyplan.apps.hepnos.service_queues import KeptQueues, ServedQueues
from keyplan.engine import (
    PIECE_BYTES,
    PIECE_PAIRS_MAX,
    Commit,
    Delete,
    DeleteRange,
    Guard,
    KeyAbsent,
    KeyRange,
    Mutation,
    Put,
    Reach,
    Snapshot,
)
from keyplan.errors import AccessDeniedError
from keyplan.operations import Answered, Operation, operations_of
from keyplan.ring import RING_KEY, RingEngine
from keyplan.server import (
    FREE_BYTES,
    AnswerError,
    CallerStore,
    Excess,
    ReadAllowance,
    Refusal,
    Responder,
    ServiceContext,
    allow_body,
    caller_of,
)

__all__ = ["DatabasesResponder", "ServedDatabases"]

_OF_QUEUES: Final = frozenset(operations_of(QueueOperations))

PAGE_BYTES_MAX: Final = 8 << 20
"""Why: a page is held in memory on both sides, and is read in the event loop where reads are local."""


class DatabasesResponder(Responder):
    """Answers in packed columns, on databases that are this service's own: what of them who asks may see."""

    knows_all_words = False

    def __init__(self, context: ServiceContext, databases: Databases, queues: KeptQueues) -> None:
        super().__init__(context)
        self._queues = queues
        self._whole_queues = ServedQueues(queues, Reach.everything)
        self._databases = databases
        self._whole = ServedDatabases(databases)

    @property
    def has_local_reads(self) -> bool:
        """Whether quick operations wait for nobody, so that they are performed in the event loop."""
        return self._whole.is_local

    async def respond(self, request: Request, operation: Operation) -> Response:
        parts = request.path_params
        await self._enter(request, parts.get("kind"), parts.get("number"), request.query_params.get("ring"))
        return await super().respond(request, operation)

    async def carry_out(
        self, request: Request, operation: Operation, arguments: dict[str, Any], body: Any = None
    ) -> Response:
        kind: Kind | None = arguments.get("kind")
        number = str(arguments["number"]) if kind is not None else None
        await self._enter(request, None if kind is None else kind.value, number, arguments.get("ring"))
        return await super().carry_out(request, operation, arguments, body)

    async def _enter(self, request: Request, kind: str | None, number: str | None, ring: str | None) -> None:
        """Find the databases of who asks. Raises AnswerError for one that is not among them, or is of another ring."""
        served = request.state.served = await self._served_for(request)
        # Why first: whoever knows another ring would place keys where nobody finds them, whatever else the request says.
        if kind is not None and number is not None:
            own = served.digest_of(kind, number)
            if own is None:
                raise AnswerError(404, "not_found", "there is no such database")
            check_ring(ring, own)

    async def served_at(
        self, request: Request, operation: Operation, arguments: Mapping[str, Any]
    ) -> "ServedDatabases":
        """Return the databases for requests that read one of them: found, and decided about, as `carry_out` does for each."""
        await self._enter(request, arguments["kind"].value, str(arguments["number"]), arguments["ring"])
        target = await self.admit(request, operation)
        await self.decide(request, operation, arguments)
        assert isinstance(target, ServedDatabases)
        return target

    async def _served_for(self, request: Request) -> "ServedDatabases":
        """Return the databases as who asks may see them."""
        caller = caller_of(request)
        assert caller is not None, "the gate lets nobody through whom it does not know"
        store = await self.context.store_of(caller)
        if store.is_whole:
            return self._whole
        if self._whole.is_local:
            return store.kept(self._made_for)
        # Why in a thread: the first time the descriptions of all databases are read.
        return await self.context.run(lambda: store.kept(self._made_for))

    def _made_for(self, store: CallerStore) -> "ServedDatabases":
        return ServedDatabases(CallersDatabases(self._databases, store.reach, store.who), store.who)

    async def admit(self, request: Request, operation: Operation) -> "ServedDatabases | ServedQueues":
        if operation.attribute in _OF_QUEUES:
            caller = caller_of(request)
            assert caller is not None
            store = await self.context.store_of(caller)
            return self._whole_queues if store.is_whole else ServedQueues(self._queues, store.reach, store.who)
        served: ServedDatabases = request.state.served
        return served

    async def refusal_of_change(
        self, operation: Operation, target: Any, arguments: Mapping[str, Any]
    ) -> Refusal | None:
        if isinstance(target, ServedQueues):
            if target.may_change(arguments["name"], arguments["type"]):
                return None
            error = AccessDeniedError(who=target.who, act=str(operation.needs.act), where="the queue of the request")
            return Refusal(error, is_noted=target.is_writable)
        served: ServedDatabases = target
        if served is self._whole:
            return None
        # Why in a thread: of many keys each is looked for.
        may_change = await self.context.run(lambda: served.may_change(**arguments))
        return None if may_change else served.refusal(operation)

    async def read(self, request: Request, operation: Operation, kind: Any) -> bytes:
        content_type = request.headers.get("content-type", "")
        if content_type != PACKED:
            message = f"the body must be {PACKED}"
            raise AnswerError(415, "unsupported_media_type", message, {"found": content_type[:100]})
        allow_body(request, COLUMNS_BYTES_MAX)
        return await request.body()

    async def perform(
        self, request: Request, operation: Operation, target: Any, arguments: Mapping[str, Any]
    ) -> Response:
        method = getattr(target, operation.attribute)
        if operation.is_quick and self._whole.is_local:
            return self.answer(operation, method(**arguments))
        return await self.context.run(lambda: self.answer(operation, method(**arguments)))


class ServedDatabases(DatabaseOperations):
    """The operations, performed on databases as somebody may see them."""

    def __init__(self, databases: Databases, who: str = "") -> None:
        self._databases = databases
        self._who = who
        self._descriptions = {(kind, number): _description(databases.rings[kind], number) for kind, number in databases}
        self._digests = {
            (kind.value, str(number)): digest_of(description)
            for (kind, number), description in self._descriptions.items()
        }
        self.is_local = all(
            engine.profile.has_local_reads for ring in databases.rings.values() for engine in ring.databases
        )

    def digest_of(self, kind: str, number: str) -> str | None:
        """Return what names the ring of a database; None where there is no such database."""
        digest = self._digests.get((kind, number))
        return None if digest is None or not self._databases.has(Kind(kind)) else digest

    def may_change(
        self,
        kind: Kind,
        keys: Sequence[bytes] = (),
        changes: Changes | None = None,
        mode: str = MODES[0],
        **_others: object,
    ) -> bool:
        """Tell whether who asks may make a change of these arguments. Raises InvalidInputError."""
        if changes is None:
            # Why none of "exist": what lies outside is not there, and is left as what is missing is.
            written = () if mode == "exist" else keys
            return self._databases.may_change(kind, read=(), written=written, removed=())
        return self._databases.may_change(
            kind,
            read=[*whole(changes.absent), *whole(changes.unchanged)],
            written=[*whole(changes.keys), *whole(changes.removed)],
            removed=check_ranges(changes.starts, changes.ends),
        )

    def refusal(self, operation: Operation) -> Refusal:
        """Return what who asks is refused with where they may not."""
        error = AccessDeniedError(who=self._who, act=str(operation.needs.act), where="a key of the request")
        return Refusal(error, is_noted=self._databases.is_writable)

    def databases(self) -> Store:
        found: dict[str, list[Database]] = {}
        for (kind, number), description in self._descriptions.items():
            if not self._databases.has(kind):
                continue
            profile = self._databases.rings[kind].databases[number].profile
            known = Database(
                description=description.decode(),
                key_bytes_max=profile.key_bytes_max,
                value_bytes_max=min(profile.value_bytes_max or COLUMNS_BYTES_MAX, COLUMNS_BYTES_MAX // 2),
                commit_bytes_max=min(profile.commit_bytes_max or COLUMNS_BYTES_MAX, COLUMNS_BYTES_MAX // 2),
                commit_operations_max=profile.commit_operations_max,
                capabilities=tuple(sorted(capability.name.lower() for capability in profile.capabilities)),
            )
            found.setdefault(kind.value, []).append(known)
        return Store(databases=found)

    def get_values(self, kind: Kind, number: int, *, ring: str, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        ring_engine = self._databases.rings[kind]
        if len(keys) == 1:
            # Why apart: it is most of what is asked, and needs no snapshot.
            value = ring_engine.value_in(number, keys[0])
            _allow(0 if value is None else len(value))
            return [value]
        with ring_engine.open_snapshot(number) as snapshot:
            return _values_of(snapshot, keys)

    def first_values(self, kind: Kind, number: int, keys: Sequence[bytes], bytes_max: int) -> list[bytes | None]:
        """Return the values of the first of some keys, of one state: as many as have so many bytes together.

        They end before a key of a data set that was deleted.
        """
        found: list[bytes | None] = []
        with self._snapshot(kind, number) as snapshot:
            for key in keys:
                try:
                    value = snapshot.value(key)
                except DeletedError:
                    break
                if value is not None:
                    bytes_max -= len(value)
                    if bytes_max < 0:
                        break
                found.append(value)
        return found

    def page(
        self,
        kind: Kind,
        number: int,
        *,
        ring: str,
        key_range: KeyRange,
        limit: int = PAGE_KEYS_MAX,
        reverse: bool = False,
        values: bool = False,
    ) -> Answered[Columns]:
        limit = min(limit, PAGE_KEYS_MAX)
        columns: Columns
        with self._snapshot(kind, number) as snapshot:
            if values:
                columns, has_more = _page_of_pairs(snapshot, key_range, limit, reverse=reverse)
            else:
                keys = list(snapshot.keys(key_range, limit=limit + 1, reverse=reverse))
                columns, has_more = [keys[:limit]], len(keys) > limit
        return Answered(columns, headers={MORE_HEADER: str(int(has_more))})

    def pages(self, kind: Kind, number: int, key_range: KeyRange, *, reverse: bool) -> Generator[list[Any], None, None]:
        """Yield pages of a range, all of one state: keys, and values joined while a processor's cache has them.

        Each has a key at least, and about 256 KiB. What is read from is open until this ends or is closed: nobody is waited for
        between two of them.
        """
        with self._snapshot(kind, number) as snapshot:
            keys: list[bytes] = []
            values = JoinedColumn()
            for own_keys, own_values in snapshot.columns(key_range, reverse=reverse):
                keys += own_keys
                values.add(own_values)
                # Why not each: the first are few, since most ranges are short.
                if len(keys) >= PIECE_PAIRS_MAX or values.size > PIECE_BYTES:
                    yield [keys, values]
                    keys, values = [], JoinedColumn()
            if keys:
                yield [keys, values]

    def count(self, kind: Kind, number: int, *, ring: str, key_range: KeyRange) -> Counted:
        with self._snapshot(kind, number) as snapshot:
            return Counted(snapshot.count(key_range))

    def put(
        self,
        kind: Kind,
        number: int,
        *,
        ring: str,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        mode: str = MODES[0],
    ) -> Written:
        check_pairs(self._databases, kind, number, keys, values)
        return Written(self._databases.put(kind, number, keys, values or None, mode=mode) if keys else 0)

    def commit(self, kind: Kind, number: int, *, ring: str, changes: Changes) -> Done:
        puts = whole(changes.keys), whole(changes.values)
        check_pairs(self._databases, kind, number, *puts)
        absent, removed = whole(changes.absent), whole(changes.removed)
        check_removed([*absent, *removed])
        ranges = check_ranges(changes.starts, changes.ends)
        mutations: tuple[Mutation, ...] = (
            *map(Put, puts[0], puts[1] or [b""] * len(puts[0])),
            *map(Delete, removed),
            *map(DeleteRange, ranges),
        )
        with self._snapshot(kind, number) as snapshot:
            as_read = unchanged_guards(snapshot, whole(changes.unchanged), whole(changes.fingerprints))
            epoch = snapshot.epoch
        guards: tuple[Guard, ...] = (*map(KeyAbsent, absent), *as_read)
        self._databases.rings[kind].commit_in(number, Commit(guards, mutations, epoch))
        return Done()

    def _snapshot(self, kind: Kind, number: int) -> AbstractContextManager[Snapshot]:
        return self._databases.rings[kind].open_snapshot(number)


def _description(ring: RingEngine, number: int) -> bytes:
    with ring.open_snapshot(number) as snapshot:
        found = snapshot.value(RING_KEY)
    assert found is not None
    return found


def _values_of(snapshot: Snapshot, keys: Sequence[bytes]) -> list[bytes | None]:
    """Return the values of keys, counted piece by piece. Raises AnswerError where who asks may hold no more."""
    found: list[bytes | None] = []
    allowance = ReadAllowance(_too_much_held, bytes_max=sys.maxsize)
    while len(found) < len(keys):
        part = snapshot.values_within(keys[len(found) : len(found) + PIECE_PAIRS_MAX], PIECE_BYTES)
        allowance.take_bytes(sum(len(value) for value in part if value is not None))
        found += part
    return found


def _allow(size: int) -> None:
    """Count a value that was read. Raises AnswerError where who asks may hold no more."""
    if size > FREE_BYTES:
        ReadAllowance(_too_much_held, bytes_max=sys.maxsize).take_bytes(size)


def _too_much_held(_bytes_max: int, excess: Excess | None) -> AnswerError:
    assert excess is not None, "a request is bounded by its caller's share alone"
    return excess.answer


def _page_of_pairs(snapshot: Snapshot, key_range: KeyRange, limit: int, *, reverse: bool) -> tuple[Columns, bool]:
    keys: list[bytes] = []
    values, pieces = JoinedColumn(), snapshot.columns(key_range, limit=limit + 1, reverse=reverse)
    for own_keys, own_values in pieces:
        if len(keys) + len(own_keys) > limit:
            # Why: the last one was asked for to tell that it is there.
            keys += own_keys[:-1]
            values.add(own_values[:-1])
            return [keys, values], True
        keys += own_keys
        values.add(own_values)
        if values.size > PAGE_BYTES_MAX:
            break
    return [keys, values], next(pieces, None) is not None
