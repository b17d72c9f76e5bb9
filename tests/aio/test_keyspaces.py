"""Key spaces, awaited: on memory, LMDB and etcd, beside the synchronous registry."""

import asyncio
from asyncio import gather, get_running_loop, to_thread
from collections.abc import Iterator

import pytest

import keyplan.aio
from keyplan.aio import KeySpaceStore
from keyplan.engine import Engine, KeyRange, open_engine
from keyplan.errors import (
    KeyplanError,
    KeySpaceApiUnavailableError,
    KeySpaceDeletingError,
    KeySpaceDisabledError,
    KeySpaceNotFoundError,
    OwnerMismatchError,
    QuotaExceededError,
)
from keyplan.keyspace import KeySpaces, Mode
from tests.aio.layouts import Hall, Rack, held, run


@pytest.fixture
def engine(any_url: str) -> Iterator[Engine]:
    engine = open_engine(any_url)
    yield engine
    engine.close()


@pytest.fixture
def registry(engine: Engine) -> KeySpaces:
    registry = KeySpaces(engine)
    registry.create("users", "shop")
    registry.create("orders", "shop")
    return registry


def keys_of(engine: Engine, prefix: bytes) -> list[bytes]:
    with engine.snapshot() as snapshot:
        return [entry.key for entry in snapshot.scan(KeyRange.of_prefix(prefix))]


@pytest.mark.usefixtures("registry")
def test_a_layout_runs_in_a_key_space_unchanged(any_url: str, engine: Engine) -> None:
    async def scenario() -> None:
        async with keyplan.aio.open(any_url, keyspace="orders", application="shop") as store:
            hall = Hall(store)
            await hall.racks.insert("r1", Rack("cellar", tags=["old"]))
            async with hall.transaction() as tx:
                await tx.racks.insert("r2", Rack("attic"))
                assert await tx.racks.count() == 2
            assert [key async for key, _ in hall.racks.list()] == ["r1", "r2"]
            assert await hall.by_room.key_of("attic") == "r2"
            assert (store.prefix, store.mode, store.application) == (b"\x02", Mode.REGISTRY, "shop")
            assert store.keyspace is not None
            assert store.keyspace.name == "orders"

    run(scenario)
    assert keys_of(engine, b"\x01") == []
    assert keys_of(engine, b"\x02") == [
        b"\x02/hall/by-room/attic",
        b"\x02/hall/by-room/cellar",
        b"\x02/hall/by-tag/old/r1",
        b"\x02/hall/racks/r1",
        b"\x02/hall/racks/r2",
    ]


@pytest.mark.usefixtures("registry")
def test_a_watch_delivers_the_key_spaces_own_changes(any_url: str) -> None:
    async def scenario() -> None:
        async with (
            keyplan.aio.open(any_url, keyspace="users", application="shop") as users,
            keyplan.aio.open(any_url, keyspace="orders", application="shop") as orders,
            Hall(orders).racks.watch() as changes,
        ):
            await Hall(users).racks.insert("foreign", Rack("cellar"))
            await Hall(orders).racks.insert("own", Rack("cellar"))
            async for change in changes:
                assert change.key == "own"
                break

    run(scenario)


def test_it_is_made_when_it_is_missing_and_only_when_asked(any_url: str, engine: Engine) -> None:
    async def scenario() -> None:
        with pytest.raises(KeySpaceNotFoundError):
            await keyplan.aio.open(any_url, keyspace="new", application="shop")
        store = await keyplan.aio.open(any_url, keyspace="new", application="shop", create_if_missing=True)
        await store.close()

    run(scenario)
    assert [keyspace.name for keyspace in KeySpaces(engine).all()] == ["new"]


def test_where_there_is_no_registry_the_default_prefix_is_used(any_url: str, engine: Engine) -> None:
    async def scenario() -> None:
        with pytest.raises(KeySpaceApiUnavailableError):
            await keyplan.aio.open(any_url, keyspace="orders", application="shop", require_keyspace_api=True)
        async with keyplan.aio.open(any_url, keyspace="orders", application="shop", default_prefix=b"/app") as store:
            assert (store.mode, store.keyspace, store.session) == (Mode.FALLBACK, None, None)
            await Hall(store).members.count()
            await Hall(store).ports.next()

    run(scenario)
    assert keys_of(engine, b"/") == [b"/app/hall/next-port"]


@pytest.mark.slow
def test_a_deletion_refuses_everything_and_is_told_on_the_loop(any_url: str, registry: KeySpaces) -> None:
    told: list[tuple[KeyplanError, object]] = []

    async def on_close(error: KeyplanError) -> None:
        told.append((error, get_running_loop()))

    async def scenario() -> None:
        async with keyplan.aio.open(any_url, keyspace="orders", application="shop", on_close=on_close) as store:
            hall = Hall(store)
            await hall.racks.insert("r1", Rack("cellar"))
            await to_thread(registry.delete, "orders")
            with pytest.raises(KeySpaceDeletingError):
                await hall.racks.insert("r2", Rack("attic"))
            with pytest.raises(KeySpaceDeletingError):
                await hall.racks.get("r1")
            await held(lambda: bool(told))
            assert not store.is_open
            assert isinstance(store.closed_by, KeySpaceDeletingError)
            assert told[0][1] is get_running_loop()

    run(scenario)
    assert [type(error) for error, _ in told] == [KeySpaceDeletingError]


@pytest.mark.slow
def test_a_handle_that_does_nothing_hears_of_the_deletion(any_url: str, registry: KeySpaces) -> None:
    async def scenario() -> None:
        async with keyplan.aio.open(any_url, keyspace="orders", application="shop") as store:
            await to_thread(registry.delete, "orders")
            await held(lambda: not store.is_open)
            with pytest.raises(KeySpaceDeletingError):
                await Hall(store).racks.get("r1")

    run(scenario)


def test_many_tasks_whose_commits_cross_a_disabling_go_on_when_it_is_enabled(any_url: str, registry: KeySpaces) -> None:
    async def scenario() -> None:
        async with keyplan.aio.open(any_url, keyspace="orders", application="shop") as store:
            hall = Hall(store)
            await to_thread(registry.disable, "orders")
            refused = await gather(
                *(hall.racks.insert(f"r{n:02}", Rack(f"room-{n}")) for n in range(20)), return_exceptions=True
            )
            assert [type(error) for error in refused] == [KeySpaceDisabledError] * 20
            await to_thread(registry.enable, "orders")
            await gather(*(hall.racks.insert(f"r{n:02}", Rack(f"room-{n}")) for n in range(20)))
            assert await hall.racks.count() == 20

    run(scenario)


@pytest.mark.usefixtures("registry")
def test_another_application_reads_and_does_not_write(any_url: str) -> None:
    async def scenario() -> None:
        async with keyplan.aio.open(any_url, keyspace="orders", application="bank") as store:
            assert await Hall(store).racks.get("r1") is None
            with pytest.raises(OwnerMismatchError):
                await Hall(store).racks.insert("r1", Rack("cellar"))
        async with keyplan.aio.open(any_url, keyspace="orders", application="bank", allow_foreign_write=True) as store:
            await Hall(store).racks.insert("r1", Rack("cellar"))

    run(scenario)


def test_the_session_lasts_as_long_as_the_handle(any_url: str, registry: KeySpaces) -> None:
    async def scenario() -> None:
        store: KeySpaceStore
        async with keyplan.aio.open(any_url, keyspace="orders", application="shop") as store:
            sessions = await to_thread(registry.sessions, "orders")
            assert [lease for lease, _ in sessions] == [store.session]

    run(scenario)
    assert registry.sessions("orders") == []


def test_a_quota_holds_and_is_found_by_open_handles(any_url: str, registry: KeySpaces) -> None:
    async def scenario() -> None:
        registry.set_quota("orders", keys=4)
        async with keyplan.aio.open(any_url, keyspace="orders", application="shop") as store:
            hall = Hall(store)
            await hall.racks.insert("r1", Rack("cellar"))  # Why: two keys, the record and its entry.
            await hall.racks.insert("r2", Rack("attic"))
            with pytest.raises(QuotaExceededError):
                await hall.racks.insert("r3", Rack("hall"))
            assert await hall.racks.count() == 2

    run(scenario)


@pytest.mark.usefixtures("registry")
def test_an_opening_that_is_cancelled_leaves_nothing_open(any_url: str, engine: Engine) -> None:
    async def scenario() -> None:
        opening = asyncio.ensure_future(_opened(any_url))
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    run(scenario)
    assert KeySpaces(engine).sessions("orders") == []


async def _opened(url: str) -> KeySpaceStore:
    return await keyplan.aio.open(url, keyspace="orders", application="shop")
