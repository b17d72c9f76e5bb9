"""Promise: entries on a lease live as long as it does, and go together, in one revision."""

import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from keyplan.engine import ALL_KEYS, Capability, Delete, DeleteRange, Engine, EventKind, KeyAbsent, Put
from keyplan.errors import CommitConflictError, InvalidInputError, LeaseNotFoundError, UnsupportedByEngineError
from keyplan.testing.engine_suite.promise import Promise, commit, eventually, everything, needs, polled, put

__all__ = ["LeasePromises"]

TTL_SECONDS = 3.0
"""Why: engines with a least time to live (etcd: about a second) keep it, and a busy machine may halt a test for two seconds;
those with a fake clock do not wait."""


class LeasePromises(Promise):
    """Leases."""

    def test_without_leases_they_are_refused(self, engine: Engine) -> None:
        if engine.profile.claims(Capability.LEASES):
            pytest.skip("the engine claims LEASES")
        with pytest.raises(UnsupportedByEngineError):
            engine.lease(TTL_SECONDS)
        with pytest.raises(UnsupportedByEngineError):
            commit(engine, Put(b"a", b"", lease=1))
        assert everything(engine) == []

    @needs(Capability.LEASES)
    def test_an_entry_carries_the_lease_it_hangs_on(self, engine: Engine) -> None:
        lease = engine.lease(TTL_SECONDS)
        assert lease.id != 0
        assert lease.ttl_seconds >= TTL_SECONDS
        commit(engine, Put(b"a", b"", lease.id), Put(b"b", b""))
        assert [(entry.key, entry.lease) for entry in everything(engine)] == [(b"a", lease.id), (b"b", 0)]

    @needs(Capability.LEASES)
    def test_every_lease_has_an_id_of_its_own(self, engine: Engine) -> None:
        assert len({engine.lease(TTL_SECONDS).id for _ in range(10)}) == 10

    @needs(Capability.LEASES)
    def test_expiry_deletes_all_entries_in_one_revision(
        self, engine: Engine, pass_time: Callable[[float], None]
    ) -> None:
        lease = engine.lease(TTL_SECONDS)
        commit(engine, Put(b"b", b"", lease.id), Put(b"c", b""))
        before = commit(engine, Put(b"a", b"", lease.id))
        watch = engine.watch(ALL_KEYS, after=before)
        pass_time(lease.ttl_seconds + 0.1)
        eventually(lambda: [entry.key for entry in everything(engine)] == [b"c"])
        events = polled(watch, until=before + 1)
        assert [(event.kind, event.key, event.revision) for event in events] == [
            (EventKind.DELETED, b"a", before + 1),
            (EventKind.DELETED, b"b", before + 1),
        ]
        assert all(event.previous is not None and event.previous.lease == lease.id for event in events)
        watch.close()

    @needs(Capability.LEASES)
    def test_leases_that_are_over_together_all_end(self, engine: Engine, pass_time: Callable[[float], None]) -> None:
        leases = [engine.lease(TTL_SECONDS) for _ in range(3)]
        for lease in leases:
            commit(engine, Put(b"%d" % lease.id, b"", lease.id))
        pass_time(max(lease.ttl_seconds for lease in leases) + 0.1)
        eventually(lambda: everything(engine) == [])

    @needs(Capability.LEASES)
    @needs(Capability.REVISIONS)
    def test_a_key_that_is_written_again_after_its_lease_begins_a_new_life(self, engine: Engine) -> None:
        lease = engine.lease(600)
        commit(engine, Put(b"a", b"", lease.id))
        commit(engine, Put(b"a", b"", lease.id))
        lease.revoke()
        revision = put(engine, b"a")
        (entry,) = everything(engine)
        assert (entry.create_revision, entry.mod_revision, entry.version) == (revision, revision, 1)

    @needs(Capability.LEASES)
    def test_a_change_of_lease_alone_is_a_change(self, engine: Engine) -> None:
        lease = engine.lease(600)
        created = put(engine, b"a", value=b"same")
        watch = engine.watch(ALL_KEYS, after=created)
        commit(engine, Put(b"a", b"same", lease.id))
        last = commit(engine, Put(b"a", b"same"))
        events = polled(watch, until=last)
        assert [(e.previous and e.previous.lease, e.entry and e.entry.lease) for e in events] == [
            (0, lease.id),
            (lease.id, 0),
        ]
        (entry,) = everything(engine)
        assert (entry.create_revision, entry.mod_revision, entry.version) == (created, last, 3)
        watch.close()

    @needs(Capability.LEASES)
    def test_a_waiting_watch_sees_a_lease_end(self, engine: Engine, pass_time: Callable[[float], None]) -> None:
        lease = engine.lease(TTL_SECONDS)
        before = commit(engine, Put(b"a", b"", lease.id))
        watch = engine.watch(ALL_KEYS, after=before)
        pass_time(lease.ttl_seconds + 0.1)
        assert [event.kind for event in polled(watch, until=before + 1)] == [EventKind.DELETED]
        watch.close()

    @needs(Capability.LEASES)
    def test_a_lease_that_is_kept_alive_does_not_end(self, engine: Engine, pass_time: Callable[[float], None]) -> None:
        is_there, longest_seconds = kept_alive(engine, pass_time)
        # Why: a machine that halts the test for longer than the lease lives proves nothing.
        while not is_there and longest_seconds >= TTL_SECONDS:
            is_there, longest_seconds = kept_alive(engine, pass_time)
        assert is_there

    @needs(Capability.LEASES)
    def test_a_lease_tells_the_seconds_that_it_has_left(
        self, engine: Engine, pass_time: Callable[[float], None]
    ) -> None:
        lease = engine.lease(600.0)
        assert 500 <= lease.seconds_left() <= 600
        pass_time(TTL_SECONDS)
        # Why a little more: it is a difference of times that may be far from zero, where floats lie apart.
        assert 500 <= lease.seconds_left() <= 600 - TTL_SECONDS + 0.001
        eventually(lambda: lease.keep_alive() and lease.seconds_left() > 600 - TTL_SECONDS)
        assert engine.lease(1.0, resume=lease.id).seconds_left() <= 600
        lease.revoke()
        with pytest.raises(LeaseNotFoundError):
            lease.seconds_left()

    @needs(Capability.LEASES)
    def test_a_lease_that_is_over_cannot_be_used(self, engine: Engine, pass_time: Callable[[float], None]) -> None:
        lease = engine.lease(TTL_SECONDS)
        put(engine, b"kept")
        pass_time(lease.ttl_seconds + 0.1)
        eventually(lambda: is_gone(engine, lease.id))
        with pytest.raises(LeaseNotFoundError):
            lease.keep_alive()
        with pytest.raises(LeaseNotFoundError):
            engine.lease(TTL_SECONDS, resume=lease.id)
        with pytest.raises(LeaseNotFoundError):
            commit(engine, Put(b"kept", b"changed"), Put(b"a", b"", lease.id))
        lease.revoke()
        assert [(entry.key, entry.value) for entry in everything(engine)] == [(b"kept", b"value")]

    @needs(Capability.LEASES)
    def test_a_lease_that_never_was_is_refused(self, engine: Engine) -> None:
        with pytest.raises(LeaseNotFoundError):
            commit(engine, Put(b"a", b"", 123_456_789))
        with pytest.raises(LeaseNotFoundError):
            engine.lease(TTL_SECONDS, resume=123_456_789)
        assert everything(engine) == []

    @needs(Capability.LEASES)
    def test_revoking_deletes_the_entries_now_and_only_once(self, engine: Engine) -> None:
        lease = engine.lease(600)
        before = commit(engine, Put(b"a", b"", lease.id), Put(b"b", b"", lease.id), Put(b"c", b""))
        lease.revoke()
        lease.revoke()
        assert [entry.key for entry in everything(engine)] == [b"c"]
        with engine.snapshot() as snapshot:
            assert snapshot.revision == before + 1
        with pytest.raises(LeaseNotFoundError):
            lease.keep_alive()

    @needs(Capability.LEASES)
    def test_ending_a_lease_without_entries_changes_nothing(self, engine: Engine) -> None:
        revision = put(engine, b"a")
        engine.lease(600).revoke()
        with engine.snapshot() as snapshot:
            assert snapshot.revision == revision

    @needs(Capability.LEASES)
    def test_a_put_without_a_lease_takes_the_entry_off_its_lease(self, engine: Engine) -> None:
        lease = engine.lease(600)
        commit(engine, Put(b"a", b"1", lease.id), Put(b"b", b"1", lease.id))
        commit(engine, Put(b"a", b"2"))
        lease.revoke()
        assert [(entry.key, entry.value, entry.lease) for entry in everything(engine)] == [(b"a", b"2", 0)]

    @needs(Capability.LEASES)
    def test_a_put_with_another_lease_moves_the_entry(self, engine: Engine) -> None:
        first, second = engine.lease(600), engine.lease(600)
        commit(engine, Put(b"a", b"", first.id))
        commit(engine, Put(b"a", b"", second.id))
        first.revoke()
        assert [entry.lease for entry in everything(engine)] == [second.id]
        second.revoke()
        assert everything(engine) == []

    @needs(Capability.LEASES)
    @pytest.mark.parametrize("removal", [Delete(b"a"), DeleteRange(ALL_KEYS)], ids=["delete", "delete range"])
    def test_a_key_that_was_deleted_and_written_anew_is_not_on_the_lease(
        self, engine: Engine, removal: Delete | DeleteRange
    ) -> None:
        lease = engine.lease(600)
        commit(engine, Put(b"a", b"", lease.id))
        commit(engine, removal)
        put(engine, b"a", value=b"anew")
        lease.revoke()
        assert [entry.value for entry in everything(engine)] == [b"anew"]

    @needs(Capability.LEASES)
    def test_a_lease_is_taken_up_again_by_its_id(self, engine: Engine) -> None:
        lease = engine.lease(600)
        commit(engine, Put(b"a", b"", lease.id))
        again = engine.lease(1, resume=lease.id)
        assert again.id == lease.id
        assert again.ttl_seconds == lease.ttl_seconds
        again.revoke()
        assert everything(engine) == []

    @needs(Capability.LEASES)
    def test_taking_up_a_lease_does_not_start_its_time_again(
        self, engine: Engine, pass_time: Callable[[float], None]
    ) -> None:
        lease = engine.lease(600)
        pass_time(TTL_SECONDS)
        assert engine.lease(1, resume=lease.id).seconds_left() <= lease.ttl_seconds - TTL_SECONDS
        assert lease.seconds_left() <= lease.ttl_seconds - TTL_SECONDS

    @needs(Capability.LEASES)
    def test_a_lease_that_was_taken_up_is_kept_alive(self, engine: Engine, pass_time: Callable[[float], None]) -> None:
        lease = engine.lease(600)
        again = engine.lease(1, resume=lease.id)
        pass_time(TTL_SECONDS)
        assert again.keep_alive() >= 600
        # Why eventually: another halt of the machine between the two calls is no fault of the engine.
        eventually(lambda: again.keep_alive() and lease.seconds_left() > lease.ttl_seconds - TTL_SECONDS)

    @needs(Capability.LEASES)
    def test_the_id_of_a_lease_that_ended_is_not_given_again(self, engine: Engine) -> None:
        ended: set[int] = set()
        for _ in range(5):
            lease = engine.lease(600)
            assert lease.id not in ended
            ended.add(lease.id)
            lease.revoke()

    @needs(Capability.LEASES)
    def test_a_refused_commit_leaves_the_lease_as_it_was(self, engine: Engine) -> None:
        lease = engine.lease(600)
        commit(engine, Put(b"a", b"", lease.id))
        with pytest.raises(CommitConflictError):
            commit(engine, Put(b"b", b"", lease.id), Put(b"a", b""), guards=[KeyAbsent(b"a")])
        assert [(entry.key, entry.lease) for entry in everything(engine)] == [(b"a", lease.id)]

    @needs(Capability.LEASES)
    @pytest.mark.parametrize("ttl_seconds", [0, -1, float("nan"), float("inf")], ids=str)
    def test_a_time_that_is_not_positive_is_refused(self, engine: Engine, ttl_seconds: float) -> None:
        with pytest.raises(InvalidInputError):
            engine.lease(ttl_seconds)


def kept_alive(engine: Engine, pass_time: Callable[[float], None]) -> tuple[bool, float]:
    """Keep a lease alive thrice; return whether its entry is there, and the longest real time without a sign of life."""
    asked_at = [time.monotonic()]
    lease = engine.lease(TTL_SECONDS)
    try:
        commit(engine, Put(b"a", b"", lease.id))
        for _ in range(3):
            pass_time(TTL_SECONDS * 0.5)
            asked_at.append(time.monotonic())
            assert lease.keep_alive() >= TTL_SECONDS
        is_there = [entry.key for entry in everything(engine)] == [b"a"]
    except LeaseNotFoundError:
        is_there = False
    asked_at.append(time.monotonic())
    return is_there, max(later - earlier for earlier, later in pairwise(asked_at))


def is_gone(engine: Engine, lease: int) -> bool:
    """Ask whether a lease is over."""
    try:
        engine.lease(TTL_SECONDS, resume=lease)
    except LeaseNotFoundError:
        return True
    return False
