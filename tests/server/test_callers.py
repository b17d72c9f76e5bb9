"""What a server keeps for callers whom an access file names: it goes when they do, and when they stop watching."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from keyplan.engine import Commit, Engine, Event, KeyRange, MemoryEngine, Profile, Put, Snapshot, Watch, WrappedEngine
from keyplan.server import Access, Caller, Closing, PolicyAccess, Role, ServiceContext, Stores, Workers
from keyplan.server.etcd_v3.messages import RECORDS
from keyplan.server.etcd_v3.watching import Selection, Watches
from keyplan.testing.engine_suite import eventually
from tests.attacks.world import Grants, policy_of

PREFIX = {"read": "prefix:/a/", "write": "prefix:/a/"}


@pytest.fixture
def memory() -> Iterator[MemoryEngine]:
    with MemoryEngine() as opened:
        yield opened


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "access.toml"
    name_only(path, "shop", "bank")
    return path


def name_only(path: Path, *names: str) -> None:
    grant(path, dict.fromkeys(names, PREFIX))


def grant(path: Path, grants: dict[str, Grants]) -> None:
    path.write_text(policy_of(grants))
    path.chmod(0o600)


def context_of(engine: Engine, access: Access) -> ServiceContext:
    return ServiceContext("etcd-v3", Stores(engine, access), {}, access, Closing(), Workers(), CollectorRegistry())


def selection(start_revision: int = 0) -> Selection:
    return Selection(RECORDS.WatchCreateRequest(key=b"/a/", range_end=b"/a0", start_revision=start_revision))


def test_who_is_named_no_more_leaves_nothing_behind(memory: MemoryEngine, file: Path) -> None:
    access = PolicyAccess.of_file(file)

    async def story() -> None:
        context = context_of(memory, access)
        store = await context.store_of(Caller(Role.CLIENT, "bank"))
        kept = store.kept(lambda _store: Watches(context))
        left: list[weakref.ref[Any]] = [weakref.ref(store), weakref.ref(kept)]
        assert await context.store_of(Caller(Role.CLIENT, "bank")) is store
        del store, kept
        name_only(file, "shop")
        while access.policy.named("bank") is not None:
            pass  # It looks at its file once in a second.
        await context.store_of(Caller(Role.CLIENT, "shop"))
        gc.collect()
        assert [one() for one in left] == [None, None]

    asyncio.run(story())


def test_a_caller_s_follower_ends_with_their_last_watch(memory: MemoryEngine, file: Path) -> None:
    def followers() -> int:
        return sum(thread.name == "keyplan-follower" for thread in threading.enumerate())

    async def story() -> None:
        context = context_of(memory, PolicyAccess.of_file(file))
        watches = Watches(context, linger_seconds=0)
        store = await context.store_of(Caller(Role.CLIENT, "shop"))
        opened = [await watches.open(store, selection()) for _ in range(2)]
        assert followers() == before + 1
        for number, (hub, stream, _) in enumerate(opened, start=1):
            watches.leave(hub, stream)
            await asyncio.sleep(0)
            assert followers() == before + 1 or number == 2
        await asyncio.to_thread(eventually, lambda: followers() == before)
        hub, stream, _ = await watches.open(store, selection())
        memory.commit(Commit((), (Put(b"/a/x", b"1"),)))
        batch = await stream.next_batch(45)
        assert batch is not None
        assert len(batch[0]) == 1
        watches.leave(hub, stream)
        await watches.close()

    before = followers()
    asyncio.run(story())
    assert followers() == before


class _Remote(WrappedEngine):
    """An engine behind a network, which notes in which threads it was asked."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self.asked: set[int] = set()

    @property
    def profile(self) -> Profile:
        return replace(super().profile, has_local_reads=False)

    def snapshot(self) -> Snapshot:
        self.asked.add(threading.get_ident())
        return super().snapshot()


def test_what_a_caller_may_see_is_looked_for_beside_the_event_loop(memory: MemoryEngine, file: Path) -> None:
    access, engine = PolicyAccess.of_file(file), _Remote(memory)

    async def story() -> None:
        context = context_of(engine, access)
        known = (await context.store_of(Caller(Role.CLIENT, "shop"))).reach()
        grant(file, {"shop": {"read": "prefix:/b/"}})
        while access.policy.named("bank") is not None:
            pass  # It looks at its file once in a second.
        assert (await context.store_of(Caller(Role.CLIENT, "shop"))).reach() is not known

    asyncio.run(story())
    assert engine.asked
    assert threading.get_ident() not in engine.asked


class _Waits(Watch):
    """A watch whose events come when somebody lets them."""

    def __init__(self, watch: Watch, begun: threading.Event, goes_on: threading.Event) -> None:
        self._watch, self._begun, self._goes_on = watch, begun, goes_on

    @property
    def revision(self) -> int:
        return self._watch.revision

    def poll(self, timeout_seconds: float) -> Sequence[Event]:
        self._begun.set()
        self._goes_on.wait()
        return self._watch.poll(timeout_seconds)

    def close(self) -> None:
        self._watch.close()


class _SlowHistory(WrappedEngine):
    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        watch = super().watch(key_range, after=after)
        return _Waits(watch, self.begun, self.goes_on) if after == 0 else watch


def test_a_client_that_goes_while_its_past_is_read_leaves_no_watch(memory: MemoryEngine) -> None:
    memory.commit(Commit((), (Put(b"/a/x", b"1"),)))

    async def story() -> None:
        engine = _SlowHistory(memory)
        context = context_of(engine, Access())
        watches = Watches(context)
        store = await context.store_of(Caller(Role.CLIENT, "local"))
        hub, stream, _ = await watches.open(store, selection(start_revision=1))
        reading = asyncio.create_task(stream.next_batch(45))
        await asyncio.to_thread(engine.begun.wait)
        assert watches.watches == 1
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        watches.leave(hub, stream)
        engine.goes_on.set()
        assert watches.watches == 0
        await watches.close()

    asyncio.run(story())
