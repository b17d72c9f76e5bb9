"""HEPnOS's databases behind HTTP: `keyplan serve --store URL --app hepnos --setting hepnos.store=lmdb:/data/nova`.

As in HEPnOS itself, a server has databases and knows nothing of events: whoever uses it makes the keys and places them, in
packed operations on many at once. Forms and routes: docs/reference/hepnos-http.md. The client is `remote.py`.
"""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from keyplan.apps.hepnos.access import checked_mode
from keyplan.apps.hepnos.databases import Address, Databases, database_counts, read_counts
from keyplan.apps.hepnos.keys import Kind
from keyplan.apps.hepnos.packed import PACKED, pack, unpack
from keyplan.apps.hepnos.service_checks import check_pairs, check_ranges, check_removed, check_ring, unchanged_guards
from keyplan.apps.hepnos.service_description import DESCRIPTION
from keyplan.engine import Commit, Delete, DeleteRange, Guard, KeyAbsent, KeyRange, Mutation, Put, Snapshot
from keyplan.errors import InvalidInputError
from keyplan.ring import RING_KEY, RingEngine
from keyplan.server import AnswerError, JsonAnswer, Service, ServiceContext, allow_body
from keyplan.settings import Setting, TextForm, of_service, read_settings

__all__ = ["BODY_BYTES_MAX", "MORE_HEADER", "PAGE_KEYS_MAX", "HepnosSettings", "build", "digest_of"]

T = TypeVar("T")

BODY_BYTES_MAX: Final = 64 << 20
"""Why: a commit of ten thousand products of 4 KiB fits, and a hundred such requests at once fit into memory."""

PAGE_KEYS_MAX: Final = 65_536
PAGE_BYTES_MAX: Final = 8 << 20
"""Why: a page is held in memory on both sides, and is read in the event loop where reads are local."""

MORE_HEADER: Final = "keyplan-more"
"""Of a page: `1` when its range goes on behind it, else `0`."""


def digest_of(description: bytes) -> str:
    """Return what requests name a database's ring by."""
    return hashlib.blake2b(description, digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class HepnosSettings:
    """What `keyplan serve --setting hepnos.NAME=TEXT` says."""

    store: Annotated[str, Setting("the URL of the store, as `hepnos.open` takes it", default="must be given")] = ""
    databases: Annotated[
        Mapping[str, int] | None,
        Setting(
            "how many databases of each kind a new store has",
            form=TextForm(lambda text: read_counts(text.split(","), source="hepnos.databases"), "`KIND=NUMBER,...`"),
            default="one of each",
        ),
    ] = None
    readonly: Annotated[bool, Setting("nothing is written")] = False


def build(context: ServiceContext) -> Service:
    """Return the service. Raises InvalidInputError for its settings, and what opening a store raises.

    The settings are those of HepnosSettings.
    """
    settings = read_settings(HepnosSettings, of_service(context.settings, "hepnos"))
    if not settings.store:
        raise InvalidInputError(source="hepnos.store", problem="a HEPnOS store has files of its own: name its URL")
    address = Address(settings.store, is_readonly=settings.readonly)
    databases = Databases.open(address, database_counts(settings.databases), create=not settings.readonly)
    handler = _Handler(context, databases)

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        try:
            yield
        finally:
            databases.close()

    return Service("hepnos", handler.routes(), DESCRIPTION, lifespan)


class _Handler:
    """The routes, over databases that are this service's own."""

    def __init__(self, context: ServiceContext, databases: Databases) -> None:
        self._context = context
        self._databases = databases
        self._descriptions = {(kind, number): _description(databases.rings[kind], number) for kind, number in databases}
        self._digests = {place: digest_of(description) for place, description in self._descriptions.items()}
        self._is_local = all(
            engine.profile.has_local_reads for ring in databases.rings.values() for engine in ring.databases
        )

    def routes(self) -> list[Route]:
        """Return the routes."""
        place = "/hepnos/databases/{kind}/{number:int}"
        verbs = {
            "get": self.get_values,
            "list": self.list_page,
            "count": self.count,
            "put": self.put,
            "commit": self.commit,
        }
        return [
            Route("/hepnos/databases", self.describe, methods=["GET"]),
            *(Route(f"{place}/{verb}", endpoint, methods=["POST"]) for verb, endpoint in verbs.items()),
        ]

    async def describe(self, _: Request) -> Response:
        """Say which databases there are."""
        found: dict[str, Any] = {}
        for (kind, number), description in self._descriptions.items():
            profile = self._databases.rings[kind].databases[number].profile
            found.setdefault(kind.value, []).append(
                {
                    "description": description.decode(),
                    "key_bytes_max": profile.key_bytes_max,
                    "value_bytes_max": min(profile.value_bytes_max or BODY_BYTES_MAX, BODY_BYTES_MAX // 2),
                    "commit_bytes_max": min(profile.commit_bytes_max or BODY_BYTES_MAX, BODY_BYTES_MAX // 2),
                    "commit_operations_max": profile.commit_operations_max,
                    "capabilities": sorted(capability.name.lower() for capability in profile.capabilities),
                }
            )
        return JsonAnswer({"databases": found, "page_keys_max": PAGE_KEYS_MAX})

    async def get_values(self, request: Request) -> Response:
        """Read values."""
        ring, number = self._place(request)
        (keys,) = await self._columns(request, 1)

        def values() -> list[bytes | None]:
            with ring.open_snapshot(number) as snapshot:
                return snapshot.values(keys)

        return Response(pack(await self._read(values)), media_type=PACKED)

    async def list_page(self, request: Request) -> Response:
        """Read a page of a range."""
        ring, number = self._place(request)
        ends = await self._columns(request, 1, is_whole=False)
        key_range = _range(ends[0])
        limit = min(_number(request, "limit", PAGE_KEYS_MAX), PAGE_KEYS_MAX)
        reverse, has_values = _flag(request, "reverse"), _flag(request, "values")

        def page() -> tuple[list[list[bytes]], bool]:
            with ring.open_snapshot(number) as snapshot:
                if has_values:
                    return _page_of_pairs(snapshot, key_range, limit, reverse=reverse)
                keys = list(snapshot.keys(key_range, limit=limit + 1, reverse=reverse))
                return [keys[:limit]], len(keys) > limit

        columns, has_more = await self._read(page)
        return Response(pack(*columns), media_type=PACKED, headers={MORE_HEADER: str(int(has_more))})

    async def count(self, request: Request) -> Response:
        """Count the keys of a range."""
        ring, number = self._place(request)
        ends = await self._columns(request, 1, is_whole=False)
        key_range = _range(ends[0])

        def counted() -> int:
            with ring.open_snapshot(number) as snapshot:
                return snapshot.count(key_range)

        # Why in a thread: a count goes through all keys of the range.
        return JsonAnswer({"count": await self._context.run(counted)})

    async def put(self, request: Request) -> Response:
        """Write keys with values, in the order of keys."""
        _, number = self._place(request)
        kind = Kind(request.path_params["kind"])
        mode = checked_mode(request.query_params.get("mode", "overwrite"))
        keys, values = await self._columns(request, 2)

        def put() -> int:
            check_pairs(self._databases, kind, number, keys, values)
            if not keys:
                return 0
            return self._databases.put(kind, number, keys, values or None, mode=mode)

        return JsonAnswer({"new": await self._context.run(put)})

    async def commit(self, request: Request) -> Response:
        """Write, remove, and remove ranges, all or nothing."""
        ring, number = self._place(request)
        kind = Kind(request.path_params["kind"])
        columns = await self._columns(request, 8, is_whole=False)
        absent, keys, values, removed, starts, ends, unchanged, fingerprints = columns

        def commit() -> None:
            puts = _whole(keys), _whole(values)
            check_pairs(self._databases, kind, number, *puts)
            check_removed([*_whole(absent), *_whole(removed)])
            ranges = check_ranges(starts, ends)
            mutations: tuple[Mutation, ...] = (
                *map(Put, puts[0], puts[1] or [b""] * len(puts[0])),
                *map(Delete, _whole(removed)),
                *map(DeleteRange, ranges),
            )
            with ring.open_snapshot(number) as snapshot:
                as_read = unchanged_guards(snapshot, _whole(unchanged), _whole(fingerprints))
                epoch = snapshot.epoch
            guards: tuple[Guard, ...] = (*map(KeyAbsent, _whole(absent)), *as_read)
            ring.commit_in(number, Commit(guards, mutations, epoch))

        await self._context.run(commit)
        return JsonAnswer({})

    # ---- what requests share -------------------------------------------------------------------------------------------

    def _place(self, request: Request) -> tuple[RingEngine, int]:
        """Return the ring and the number of the database that a request names. Raises AnswerError."""
        number = request.path_params["number"]
        try:
            kind = Kind(request.path_params["kind"])
            digest = self._digests[kind, number]
        except (ValueError, KeyError) as error:
            raise AnswerError(404, "not_found", "there is no such database") from error
        check_ring(request.query_params.get("ring"), digest)
        return self._databases.rings[kind], number

    async def _columns(self, request: Request, columns: int, *, is_whole: bool = True) -> Any:
        content_type = request.headers.get("content-type", "")
        if content_type != PACKED:
            message = f"the body must be {PACKED}"
            raise AnswerError(415, "unsupported_media_type", message, {"found": content_type[:100]})
        allow_body(request, BODY_BYTES_MAX)
        found = unpack(await request.body(), columns)
        return list(map(_whole, found)) if is_whole else found

    def _read(self, call: Callable[[], T]) -> Awaitable[T]:
        return _at_once(call) if self._is_local else self._context.run(call)


async def _at_once(call: Callable[[], T]) -> T:
    return call()


def _description(ring: RingEngine, number: int) -> bytes:
    with ring.open_snapshot(number) as snapshot:
        found = snapshot.value(RING_KEY)
    assert found is not None
    return found


def _whole(column: Sequence[bytes | None]) -> list[bytes]:
    if None in column:
        raise InvalidInputError(source="body", problem="a key or a value is missing")
    return column  # type: ignore[return-value] # Why: looked at just now.


def _range(ends: Sequence[bytes | None]) -> KeyRange:
    if len(ends) != 2 or ends[0] is None:
        raise InvalidInputError(source="body", problem="a range is given by its start, and its end or nothing")
    return KeyRange(ends[0], ends[1])


def _page_of_pairs(
    snapshot: Snapshot, key_range: KeyRange, limit: int, *, reverse: bool
) -> tuple[list[list[bytes]], bool]:
    keys: list[bytes] = []
    values: list[bytes] = []
    size = 0
    pairs = snapshot.pairs(key_range, reverse=reverse)
    for key, value in islice(pairs, limit):
        keys.append(key)
        values.append(value)
        size += len(value)
        if size > PAGE_BYTES_MAX:
            break
    return [keys, values], next(pairs, None) is not None


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise InvalidInputError(source=name, problem="it is a whole number from 1 on")
    return int(text)


def _flag(request: Request, name: str) -> bool:
    text = request.query_params.get(name, "0")
    if text not in {"0", "1"}:
        raise InvalidInputError(source=name, problem="it is 0 or 1")
    return text == "1"
