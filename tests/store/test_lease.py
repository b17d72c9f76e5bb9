"""Leases of a store: records that live as long as their holder, who is told when he loses one."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from threading import Event, current_thread
from threading import enumerate as living_threads

import pytest

from keyplan.engine import ALL_KEYS, Commit, Engine, EventKind, MemoryEngine, Put, WrappedEngine
from keyplan.engine import Lease as EngineLease
from keyplan.engine.lmdb import LmdbEngine, LmdbOptions
from keyplan.errors import (
    EngineUnavailableError,
    InvalidInputError,
    InvalidRecordError,
    LeaseNotFoundError,
    UnsupportedByEngineError,
)
from keyplan.layout import ChangeKind
from keyplan.store import Lease, Store, open_store
from keyplan.testing.checked import assert_healthy
from keyplan.testing.faults import FakeClock
from tests.store.layouts import Blade, BladeKey, Site

ONE = BladeKey("r1", "1")
LONG_SECONDS = 600.0
SOON_SECONDS = 60.0
"""How long a test waits for what comes at once, or never."""


@pytest.fixture(params=["memory", "lmdb"])
def engine_on(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[FakeClock], Engine]:
    """Make an engine whose leases go by the clock given."""
    if request.param == "memory":
        return lambda clock: MemoryEngine(clock=clock)
    return lambda clock: LmdbEngine(tmp_path / "store", LmdbOptions(clock=clock))


def members(site: Site) -> list[str]:
    return list(site.members.keys())


# ---- records on a lease -------------------------------------------------------------------------------------------------


def test_a_record_is_there_as_long_as_its_holder(site: Site, store: Store) -> None:
    with store.lease(LONG_SECONDS) as lease:
        site.members.insert("m1", Blade("s1", ["a"]), lease=lease)
        assert (members(site), site.member_by_serial.key_of("s1")) == (["m1"], "m1")
    assert (members(site), site.member_by_serial.count(), site.member_by_tag.count()) == ([], 0, 0)


def test_record_and_index_entries_end_in_one_revision(site: Site, store: Store) -> None:
    lease = store.lease(LONG_SECONDS)
    site.members.insert("m1", Blade("s1", ["a", "b"]), lease=lease)
    revision = site.members.insert("m2", Blade(), lease=lease.id)
    with site.members.watch() as changes, site.member_by_tag.watch("a") as tagged:
        lease.revoke()
        assert [(change.kind, change.key, change.revision) for change in changes.poll(10)] == [
            (ChangeKind.REMOVED, "m1", revision + 1),
            (ChangeKind.REMOVED, "m2", revision + 1),
        ]
        assert [(change.kind, change.old) for change in tagged.poll(10)] == [
            (ChangeKind.REMOVED, Blade("s1", ["a", "b"]))
        ]
    events = store.engine.watch(ALL_KEYS, after=revision).poll(10)
    assert [(event.kind, event.key, event.revision) for event in events] == [
        (EventKind.DELETED, key, revision + 1)
        for key in (
            b"/site/member-by-serial/s1",
            b"/site/member-by-tag/a/m1",
            b"/site/member-by-tag/b/m1",
            b"/site/members/m1",
            b"/site/members/m2",
        )
    ]


def test_a_lease_can_be_given_as_the_stores_the_engines_or_its_id(site: Site, store: Store) -> None:
    held, raw = store.lease(LONG_SECONDS), store.engine.lease(LONG_SECONDS)
    site.members.insert("m1", Blade(), lease=held)
    site.members.insert("m2", Blade(), lease=raw)
    with site.transaction() as tx:
        tx.members.put("m3", Blade(), lease=held.id)
    assert [entry.lease for entry in site.members.entries()] == [held.id, raw.id, held.id]


def test_update_and_modify_stay_on_the_lease_and_put_moves(site: Site, store: Store) -> None:
    first, second = store.lease(LONG_SECONDS), store.lease(LONG_SECONDS)
    site.members.insert("m1", Blade("s1"), lease=first)
    site.members.update("m1", Blade("s2"))
    site.members.modify("m1", lambda blade: Blade(blade.serial, ["a"]))
    assert [entry.lease for entry in site.members.entries()] == [first.id]
    site.members.put("m1", Blade("s2", ["b"]), lease=second)
    first.revoke()
    assert site.member_by_serial.key_of("s2") == "m1"
    second.revoke()
    assert members(site) == []


def test_a_table_of_leased_records_takes_none_without_a_lease(site: Site, store: Store) -> None:
    with pytest.raises(InvalidRecordError) as caught:
        site.members.insert("m1", Blade())
    assert caught.value.table == "members"
    with pytest.raises(InvalidRecordError):
        site.members.put("m1", Blade())
    with pytest.raises(InvalidRecordError), site.transaction() as tx:
        tx.members.put("m1", Blade())
    assert store.revision == 0


def test_another_table_takes_no_record_on_a_lease(site: Site, store: Store) -> None:
    lease = store.lease(LONG_SECONDS)
    with pytest.raises(InvalidRecordError) as caught:
        site.blades.insert(ONE, Blade(), lease=lease)
    assert caught.value.table == "blades"
    with pytest.raises(InvalidRecordError):
        site.blades.put(ONE, Blade(), lease=lease.id)
    assert store.revision == 0


def test_a_put_takes_a_record_off_a_lease_that_another_program_put_it_on(site: Site, store: Store) -> None:
    lease = store.engine.lease(LONG_SECONDS)
    store.engine.commit(
        Commit(
            (),
            (
                Put(b"/site/rack/r1/blades/1", b'{"serial":"s1"}', lease.id),
                Put(b"/site/by-serial/s1", b"rack/r1/blades/1", lease.id),
            ),
        )
    )
    site.blades.put(ONE, Blade("s1", [], 5))
    lease.revoke()
    assert site.by_serial.one("s1") == Blade("s1", [], 5)


def test_a_time_that_is_none_is_refused(store: Store) -> None:
    with pytest.raises(InvalidInputError):
        store.lease(0)


def test_an_engine_without_leases_refuses_them(tmp_path: Path) -> None:
    with open_store(f"lmdb:{tmp_path}", history="off") as store:
        with pytest.raises(UnsupportedByEngineError):
            store.lease(5)
        with pytest.raises(UnsupportedByEngineError):
            store.resume_lease(1)


# ---- the end of a lease -------------------------------------------------------------------------------------------------


def test_a_revoked_lease_is_not_lost_but_refuses_writes(site: Site, store: Store) -> None:
    lost: SimpleQueue[Lease] = SimpleQueue()
    lease = store.lease(LONG_SECONDS, on_loss=lost.put)
    lease.revoke()
    lease.revoke()
    assert (lease.is_lost, lease.is_over, lease.loss) == (False, True, "")
    with pytest.raises(LeaseNotFoundError):
        site.members.insert("m1", Blade(), lease=lease)
    with pytest.raises(LeaseNotFoundError):
        lease.keep_alive()
    assert lost.empty()


def test_a_lease_that_another_revoked_is_lost_at_the_next_renewal(site: Site, store: Store) -> None:
    lost: SimpleQueue[Lease] = SimpleQueue()
    lease = store.lease(LONG_SECONDS, on_loss=lost.put)
    store.resume_lease(lease.id, keep_alive=False).revoke()
    assert lease.loss == "", "it is not known yet"
    with pytest.raises(LeaseNotFoundError):
        lease.keep_alive()
    assert lost.get(timeout=SOON_SECONDS) is lease
    assert lease.is_lost
    assert lease.loss == "it expired, or was revoked by another holder"
    with pytest.raises(LeaseNotFoundError) as caught:
        site.members.insert("m1", Blade(), lease=lease)
    assert caught.value.lease == lease.id
    lease.revoke()
    assert lost.empty()


def test_the_thread_notices_that_a_lease_was_revoked(store: Store) -> None:
    lost = Event()
    lease = store.lease(0.2, on_loss=lambda _: lost.set())
    store.engine.lease(1, resume=lease.id).revoke()
    assert lost.wait(SOON_SECONDS)
    assert lease.is_lost


def test_a_lease_that_nobody_renews_is_lost_when_its_time_is_over(site: Site, store: Store) -> None:
    lost = Event()
    lease = store.lease(0.1, on_loss=lambda _: lost.set(), keep_alive=False)
    assert lost.wait(SOON_SECONDS)
    assert lease.is_lost
    assert members(site) == []


def test_closing_the_store_tells_every_holder_once_and_leaves_the_records(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}"
    lost: SimpleQueue[tuple[Lease, str]] = SimpleQueue()
    with open_store(url) as store:
        first = store.lease(LONG_SECONDS, on_loss=lambda lease: lost.put((lease, current_thread().name)))
        second = store.lease(LONG_SECONDS, on_loss=lambda lease: lost.put((lease, current_thread().name)))
        Site(store).members.insert("m1", Blade(), lease=first)
    store.close()
    told = [lost.get(timeout=SOON_SECONDS) for _ in range(2)]
    assert {lease for lease, _ in told} == {first, second}
    assert all(thread.startswith("keyplan-lease") for _, thread in told), "not the thread of who closed it"
    assert first.loss == "the store was closed"
    with pytest.raises(LeaseNotFoundError):
        first.keep_alive()
    first.revoke()
    assert lost.empty()
    with open_store(url) as store:
        assert members(Site(store)) == ["m1"]


def test_a_block_ends_quietly_when_the_store_was_closed_inside(tmp_path: Path) -> None:
    store = open_store(f"lmdb:{tmp_path}")
    with store.lease(LONG_SECONDS) as lease:
        store.close()
    assert lease.is_lost


def test_a_lease_after_closing_is_refused(store: Store) -> None:
    with open_store("memory:") as other:
        other.close()
        with pytest.raises(EngineUnavailableError):
            other.lease(5)


# ---- renewing -----------------------------------------------------------------------------------------------------------


class Renewals(WrappedEngine):
    """Notes every renewal; `failing` are answered with an error before they reach the engine, -1: all from now on."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self.renewed: SimpleQueue[int] = SimpleQueue()
        self.failing = 0
        self.failed = 0

    def lease(self, ttl_seconds: float, *, resume: int = 0) -> EngineLease:
        return _Renewed(self, super().lease(ttl_seconds, resume=resume))


class _Renewed:
    def __init__(self, engine: Renewals, inner: EngineLease) -> None:
        self._engine, self._inner = engine, inner
        self.id, self.ttl_seconds = inner.id, inner.ttl_seconds
        self.seconds_left, self.revoke = inner.seconds_left, inner.revoke

    def keep_alive(self) -> float:
        if self._engine.failing:
            self._engine.failing -= 1
            self._engine.failed += 1
            raise EngineUnavailableError(engine="renewals", problem="the network is down")
        seconds = self._inner.keep_alive()
        self._engine.renewed.put(self.id)
        return seconds


def keepers() -> int:
    return sum(thread.name == "keyplan-leases" for thread in living_threads())


def test_leases_are_renewed_by_one_thread_for_as_long_as_they_are_held() -> None:
    before, clock = keepers(), FakeClock()
    engine = Renewals(MemoryEngine(clock=clock))
    with Store(engine, clock=clock) as store:
        leases = [store.lease(9) for _ in range(5)]
        assert keepers() == before + 1
        Site(store).members.insert("m1", Blade(), lease=leases[0])
        for _ in range(5):
            clock.advance(3.5)
            assert {engine.renewed.get(timeout=SOON_SECONDS) for _ in leases} == {lease.id for lease in leases}
        assert not any(lease.is_lost for lease in leases)
        assert members(Site(store)) == ["m1"]
        for lease in leases:
            lease.revoke()
    assert keepers() == before


def test_a_renewal_that_fails_is_tried_again() -> None:
    engine = Renewals(MemoryEngine())
    with Store(engine) as store:
        engine.failing = 2
        lease = store.lease(3)
        assert engine.renewed.get(timeout=SOON_SECONDS) == lease.id
        assert (engine.failed, lease.is_lost) == (2, False)


def test_a_lease_that_cannot_be_renewed_in_its_time_is_lost() -> None:
    engine = Renewals(MemoryEngine())
    lost = Event()
    with Store(engine) as store:
        engine.failing = -1
        lease = store.lease(0.6, on_loss=lambda _: lost.set())
        assert lost.wait(SOON_SECONDS)
        assert lease.loss == "it could not be renewed in time: the engine cannot be reached"
        assert engine.failed <= 12, "tries are bounded"


def test_a_holder_whose_answer_fails_or_takes_long_does_not_hinder_others() -> None:
    clock = FakeClock()
    engine = Renewals(MemoryEngine(clock=clock))
    go_on, entered = Event(), Event()

    def slow(_: Lease) -> None:
        entered.set()
        go_on.wait(SOON_SECONDS)

    with Store(engine, clock=clock) as store:
        kept, lost = store.lease(9), store.lease(9, on_loss=slow)
        engine.inner.lease(1, resume=lost.id).revoke()
        clock.advance(3.5)
        assert entered.wait(SOON_SECONDS)
        assert engine.renewed.get(timeout=SOON_SECONDS) == kept.id
        for _ in range(3):
            clock.advance(3.5)
            assert engine.renewed.get(timeout=SOON_SECONDS) == kept.id
        assert not kept.is_lost
        go_on.set()


# ---- other processes, crashes and clocks --------------------------------------------------------------------------------


def test_a_lease_is_taken_up_by_its_id(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}"
    with open_store(url) as store:
        lease_id = store.lease(LONG_SECONDS).id
    with open_store(url) as store:
        lease = store.resume_lease(lease_id)
        assert (lease.id, lease.ttl_seconds) == (lease_id, LONG_SECONDS)
        Site(store).members.insert("m1", Blade(), lease=lease)
        lease.revoke()
        with pytest.raises(LeaseNotFoundError):
            store.resume_lease(lease_id)
        with pytest.raises(LeaseNotFoundError):
            store.resume_lease(0)


HOLDER = """
import sys
from keyplan.store import open_store
from tests.store.layouts import Blade, Site
store = open_store(sys.argv[1])
lease = store.lease(1.5)
Site(store).members.insert("m1", Blade("s1", ["a"]), lease=lease)
print(lease.id, flush=True)
sys.stdin.read()
"""


def test_the_records_of_a_killed_holder_end_in_one_revision_seen_by_a_waiting_watch(
    tmp_path: Path, repository: Path
) -> None:
    url = f"lmdb:{tmp_path}"
    with open_store(url) as store, Site(store).members.watch() as changes:
        with subprocess.Popen(
            [sys.executable, "-c", HOLDER, url], cwd=repository, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as holder:
            inserted = next(changes)
            assert holder.stdout is not None
            assert int(holder.stdout.readline()) > 0
            holder.kill()
        removed = next(changes)
        assert (inserted.kind, removed.kind) == (ChangeKind.INSERTED, ChangeKind.REMOVED)
        assert (removed.key, removed.old) == ("m1", Blade("s1", ["a"]))
        assert (Site(store).member_by_serial.count(), Site(store).member_by_tag.count()) == (0, 0)
        assert_healthy(store, Site)


def test_a_wall_clock_that_steps_neither_ends_nor_prolongs_a_lease(engine_on: Callable[[FakeClock], Engine]) -> None:
    clock = FakeClock()
    with Store(engine_on(clock), clock=clock) as store:
        site = Site(store)
        lease = store.lease(10, keep_alive=False)
        site.members.insert("m1", Blade("s1", ["a"]), lease=lease)
        for step in (86_400, -2 * 86_400):
            clock.step_wall(step)
            assert members(site) == ["m1"]
        clock.advance(10.5)
        assert (members(site), site.member_by_serial.count(), site.member_by_tag.count()) == ([], 0, 0)
        with pytest.raises(LeaseNotFoundError):
            lease.keep_alive()


def test_a_store_renews_by_the_clock_that_it_was_given(engine_on: Callable[[FakeClock], Engine]) -> None:
    clock = FakeClock()
    engine = Renewals(engine_on(clock))
    with Store(engine, clock=clock) as store:
        lease = store.lease(9)
        for _ in range(5):
            clock.advance(3.5)
            assert engine.renewed.get(timeout=SOON_SECONDS) == lease.id
        assert not lease.is_lost


def test_a_machine_that_was_off_longer_than_the_lease_has_lost_it(tmp_path: Path) -> None:
    clock = FakeClock()
    with Store(LmdbEngine(tmp_path, LmdbOptions(clock=clock)), clock=clock) as store:
        lease = store.lease(60, keep_alive=False)
        Site(store).members.insert("m1", Blade("s1", ["a"]), lease=lease)
    clock.restart_machine(off_seconds=120)
    with Store(LmdbEngine(tmp_path, LmdbOptions(clock=clock)), clock=clock) as store:
        assert members(Site(store)) == []
        assert Site(store).member_by_serial.count() == 0
        with pytest.raises(LeaseNotFoundError):
            store.resume_lease(lease.id)
