"""Leases and history by owner: what one owner does with a number changes nothing of another's."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from keyplan.engine import (
    ALL_KEYS,
    MEMORY_PROFILE,
    NO_LEASE,
    Capability,
    Commit,
    Engine,
    Lease,
    Lineage,
    MemoryEngine,
    OwnedHistory,
    OwnedLeases,
    Put,
    WrappedEngine,
)
from keyplan.errors import (
    CommitConflictError,
    HistoryCompactedError,
    InvalidInputError,
    LeaseNotFoundError,
    UnsupportedByEngineError,
)

MARKS = b"\x00marks/"
FLOOR = b"\x00floor"


def put(engine: Engine, *keys: bytes, lease: int = 0) -> int:
    return engine.commit(Commit((), tuple(Put(key, b"", lease) for key in keys)))


def keys(engine: Engine) -> list[bytes]:
    with engine.snapshot() as snapshot:
        return list(snapshot.keys(ALL_KEYS))


# ---- leases --------------------------------------------------------------------------------------------------------------


def test_a_lease_is_its_owner_s_and_is_there_for_nobody_else() -> None:
    with MemoryEngine() as engine:
        ann, bob = (OwnedLeases(engine, owner, MARKS) for owner in ("ann", "bob"))
        lease = ann.lease(600)
        put(engine, b"a", lease=lease.id)
        with pytest.raises(LeaseNotFoundError) as caught:
            bob.lease(600, resume=lease.id)
        assert caught.value.facts == {"lease": lease.id}
        with pytest.raises(LeaseNotFoundError):
            bob.check([Put(b"b", b""), Put(b"b", b"", lease.id)])
        ann.check([Put(b"b", b"", lease.id)])
        again = OwnedLeases(engine, "ann", MARKS).lease(1, resume=lease.id)  # another handle of the same owner
        assert again.keep_alive() == 600


def test_the_mark_of_a_lease_ends_with_it() -> None:
    with MemoryEngine() as engine:
        leases = OwnedLeases(engine, "ann", MARKS)
        lease = leases.lease(600)
        assert keys(engine) == [MARKS + lease.id.to_bytes(8, "big")]
        lease.revoke()
        assert keys(engine) == []
        with pytest.raises(LeaseNotFoundError):
            leases.lease(1, resume=lease.id)


def test_a_lease_that_nobody_was_granted_here_is_nobody_s() -> None:
    with MemoryEngine() as engine:
        leases = OwnedLeases(engine, "ann", MARKS)
        for number in (engine.lease(600).id, 77, -1, 1 << 64):
            with pytest.raises(LeaseNotFoundError):
                leases.lease(1, resume=number)
            with pytest.raises(LeaseNotFoundError):
                leases.check([Put(b"a", b"", number)])


def test_a_grant_whose_mark_is_refused_leaves_no_lease() -> None:
    granted: list[int] = []

    class Granting(WrappedEngine):
        def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
            lease = self.inner.lease(ttl_seconds, resume=resume)
            granted.append(lease.id)
            return lease

    def refuse(_commit: Commit) -> int:
        raise CommitConflictError(failed=())

    with MemoryEngine() as engine:
        with pytest.raises(CommitConflictError):
            OwnedLeases(Granting(engine), "ann", MARKS, commit=refuse).lease(600)
        with pytest.raises(LeaseNotFoundError):
            engine.lease(1, resume=granted[0])


def test_what_was_known_of_a_lease_counts_in_one_line_of_commits_only() -> None:
    class Replaced(WrappedEngine):
        line = "0"

        def lineage(self) -> Lineage:
            return Lineage("store", self.line)

    with MemoryEngine() as engine:
        around = Replaced(engine)
        ann = OwnedLeases(around, "ann", MARKS)
        number = ann.lease(600).id
        # A copy from before the grant came back, and gives the same number out, to somebody else.
        mark = MARKS + number.to_bytes(8, "big")
        engine.commit(Commit((), (Put(mark, b'{"owner":"bob"}', number),)))
        ann.check([Put(b"a", b"", number)])  # as long as nobody has noticed
        around.line = "1"
        with pytest.raises(LeaseNotFoundError):
            ann.check([Put(b"a", b"", number)])


def test_an_engine_without_leases_says_so() -> None:
    without = replace(MEMORY_PROFILE, capabilities=frozenset[Capability]())
    with MemoryEngine(profile=without) as engine:
        leases = OwnedLeases(engine, "ann", MARKS)
        with pytest.raises(UnsupportedByEngineError):
            leases.lease(1)
        with pytest.raises(UnsupportedByEngineError):
            leases.lease(1, resume=1)
        with pytest.raises(UnsupportedByEngineError):
            OwnedHistory(engine, "ann", FLOOR).compact(0)


# ---- history -------------------------------------------------------------------------------------------------------------


def test_who_compacts_forgets_its_own_history_and_nobody_else_s() -> None:
    with MemoryEngine() as engine:
        ann, bob = (OwnedHistory(engine, owner, b"\x00" + owner.encode()) for owner in ("ann", "bob"))
        first, second = put(engine, b"a"), put(engine, b"a")
        ann.compact(second)
        with pytest.raises(HistoryCompactedError) as caught:
            ann.watch(ALL_KEYS, after=first)
        assert caught.value.facts == {"revision": first, "compacted_revision": second}
        assert [event.key for event in bob.watch(ALL_KEYS, after=first).poll(5)][:1] == [b"a"]
        assert [event.key for event in engine.watch(ALL_KEYS, after=0).poll(5)][:2] == [b"a", b"a"]
        assert ann.watch(ALL_KEYS, after=second).poll(5)


def test_a_floor_moves_up_alone_and_never_beyond_the_store() -> None:
    with MemoryEngine() as engine:
        history = OwnedHistory(engine, "ann", FLOOR)
        revisions = [put(engine, b"a") for _ in range(4)]
        history.compact(revisions[2])
        history.compact(revisions[1])
        assert history.floor_in(engine.value(FLOOR)) == revisions[2]
        with pytest.raises(InvalidInputError):
            history.compact(revisions[3] + 100)


@pytest.mark.parametrize(
    "value", [b"", b"no json", b"[]", b'{"owner":"\xff","revision":9}', b'{"owner":"bob","revision":9}']
)
def test_what_is_no_floor_of_the_owner_s_forgets_nothing(value: bytes) -> None:
    with MemoryEngine() as engine:
        revision = put(engine, b"a")
        engine.commit(Commit((), (Put(FLOOR, value),)))
        history = OwnedHistory(engine, "ann", FLOOR)
        assert history.watch(ALL_KEYS, after=0).poll(5)
        history.compact(revision)
        assert history.floor_in(engine.value(FLOOR)) == revision


def test_two_who_move_one_floor_at_once_leave_the_higher() -> None:
    class Meanwhile(WrappedEngine):
        act: Callable[[], object] | None = None

        def commit(self, commit: Commit) -> int:
            act, self.act = self.act, None
            if act is not None:
                act()
            return self.inner.commit(commit)

    with MemoryEngine() as engine:
        revisions = [put(engine, b"a") for _ in range(4)]
        for mine, other in ((revisions[3], revisions[1]), (revisions[1], revisions[3])):
            engine.commit(Commit((), (Put(FLOOR, b'{"owner":"ann","revision":0}'),)))
            around = Meanwhile(engine)
            around.act = lambda other=other: OwnedHistory(engine, "ann", FLOOR).compact(other)
            history = OwnedHistory(around, "ann", FLOOR)
            history.compact(mine)
            assert history.floor_in(engine.value(FLOOR)) == revisions[3]
