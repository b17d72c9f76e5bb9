"""What a transaction compared and read is guarded or refused; a follower that is lost at once silences nobody."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from keyplan.engine import (
    Commit,
    Event,
    KeyRange,
    MemoryEngine,
    Put,
    RangeUnchanged,
    Watch,
    WrappedEngine,
)
from keyplan.errors import EngineUnavailableError
from keyplan.server import Access, Caller, Closing, Role, ServiceContext, Stores, Workers
from keyplan.server.etcd_v3.changes import Changes
from keyplan.server.etcd_v3.failures import CallFailure
from keyplan.server.etcd_v3.messages import RECORDS
from keyplan.server.etcd_v3.watching import Selection, Watches

BELOW = KeyRange.of_prefix(b"/m/")


def store_of(count: int) -> MemoryEngine:
    engine = MemoryEngine()
    engine.commit(Commit((), tuple(Put(b"/m/%04d" % number, b"x") for number in range(count))))
    return engine


@pytest.mark.parametrize(("count", "is_taken"), [(126, True), (127, False), (200, False)])
def test_what_was_compared_is_guarded_or_the_transaction_is_refused(count: int, is_taken: bool) -> None:  # noqa: FBT001
    with store_of(count).snapshot() as snapshot:
        changes = Changes(snapshot)
        changes.get(b"/flag")
        changes.range(BELOW)
        changes.put(b"/flag", b"all are x", 0)
        if is_taken:
            guards = changes.commit(guards_max=128).guards
            assert [guard.range for guard in guards if isinstance(guard, RangeUnchanged)] == [BELOW]
        else:
            with pytest.raises(CallFailure, match="compare fewer keys"):
                changes.commit(guards_max=128)


def test_a_delete_of_any_range_is_taken_as_by_etcd() -> None:
    with store_of(200).snapshot() as snapshot:
        changes = Changes(snapshot)
        changes.delete(BELOW)
        assert changes.commit(guards_max=128).guards == ()


def test_what_is_read_back_in_a_transaction_is_guarded() -> None:
    engine = store_of(1)
    with engine.snapshot() as snapshot:
        changes = Changes(snapshot)
        changes.put(b"/m/0000", b"y", 0)
        assert changes.commit(guards_max=None).guards == (), "a put alone is taken whatever is there"
        changes.get(b"/m/0000")
        assert len(changes.commit(guards_max=None).guards) == 1


class _Lost(Watch):
    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    @property
    def revision(self) -> int:
        return self._watch.revision

    def poll(self, timeout_seconds: float = 0.0) -> list[Event]:
        raise EngineUnavailableError(engine="test", problem="gone")

    def close(self) -> None:
        self._watch.close()


class _LosesItsFirstWatch(WrappedEngine):
    watches = 0

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        self.watches += 1
        watch = super().watch(key_range, after=after)
        return _Lost(watch) if self.watches == 1 else watch


def test_a_follower_that_is_lost_before_it_is_known_silences_no_watch() -> None:
    memory = MemoryEngine()

    async def story() -> list[object]:
        engine = _LosesItsFirstWatch(memory)
        access = Access()
        stores = Stores(engine, access)
        context = ServiceContext("etcd-v3", stores, {}, access, Closing(), Workers(), CollectorRegistry())
        watches = Watches(context)
        store = await context.store_of(Caller(Role.CLIENT, "local"))
        told: list[object] = []
        for number in range(3):
            hub, stream, _ = await watches.open(store, Selection(RECORDS.WatchCreateRequest(key=b"a")))
            memory.commit(Commit((), (Put(b"a", b"%d" % number),)))
            batch = await stream.next_batch(10)
            told.append("ended" if batch is None else len(batch[0]))
            hub.leave(stream)
        await watches.close()
        return told

    first, *later = asyncio.run(story())
    assert first in {"ended", 1}
    assert later == [1, 1]
