"""A lease that ends early, does not end, or tells what is not so is refused; each fault by an engine that has it."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from keyplan.engine import ALL_KEYS, NO_LEASE, Commit, Delete, Engine, Lease, MemoryEngine, Put, WrappedEngine
from keyplan.errors import EngineUnavailableError, LeaseNotFoundError
from keyplan.testing.faults import FakeClock
from keyplan.testing.history import Finding, History, HistoryEngine, Journal, Truth, Wrong, check_history, read_records

CLOCK = FakeClock()
"""Each test moves it on; nothing goes back."""


def held(engine: Engine) -> None:
    """Hold two leases: one is kept alive and revoked, the other is left to its end; ask for both on the way."""
    kept, left = engine.lease(10), engine.lease(10)
    engine.commit(Commit((), (Put(b"kept", b"~1~", kept.id), Put(b"left", b"~1~", left.id))))
    CLOCK.advance(6)
    kept.keep_alive()
    kept.seconds_left()
    look(engine)
    CLOCK.advance(5)
    look(engine)
    kept.seconds_left()
    engine.commit(Commit((), (Put(b"kept too", b"~2~", kept.id),)))
    with pytest.raises(LeaseNotFoundError):
        engine.commit(Commit((), (Put(b"left too", b"~3~", left.id),)))
    kept.revoke()
    look(engine)
    for lease in (kept, left):
        with pytest.raises(LeaseNotFoundError):
            lease.keep_alive()


def look(engine: Engine) -> None:
    """Read everything."""
    with engine.snapshot() as snapshot:
        assert snapshot.count(ALL_KEYS) >= 0


class LeaseAround:
    """A lease that answers as the one inside; faults override a part of it."""

    def __init__(self, inner: Lease, engine: Engine) -> None:
        self.inner = inner
        self.engine = engine

    @property
    def id(self) -> int:
        """Its id."""
        return self.inner.id

    @property
    def ttl_seconds(self) -> float:
        """How long it lives."""
        return self.inner.ttl_seconds

    def keep_alive(self) -> float:
        """Renew it."""
        return self.inner.keep_alive()

    def seconds_left(self) -> float:
        """How long it still lives."""
        return self.inner.seconds_left()

    def revoke(self) -> None:
        """End it."""
        self.inner.revoke()


class Unrenewed(LeaseAround):
    """A keep-alive is answered, and nothing is renewed."""

    def keep_alive(self) -> float:
        """Only the answer."""
        self.inner.seconds_left()
        return self.ttl_seconds


class Unrevoked(LeaseAround):
    """A revoke is answered, and nothing is revoked."""

    def revoke(self) -> None:
        """Nothing."""


class Undying(LeaseAround):
    """A keep-alive of a lease that is gone is answered."""

    def keep_alive(self) -> float:
        """Its whole time, come what may."""
        try:
            return self.inner.keep_alive()
        except LeaseNotFoundError:
            return self.ttl_seconds


class TooLong(LeaseAround):
    """Tells more seconds than a lease lives."""

    def seconds_left(self) -> float:
        """Twice as many."""
        return self.ttl_seconds * 2


class TooShort(LeaseAround):
    """Tells fewer seconds than there are."""

    def seconds_left(self) -> float:
        """A tenth."""
        return self.inner.seconds_left() / 10


class Lost(LeaseAround):
    """Is said to be gone while it lives."""

    def seconds_left(self) -> float:
        """None."""
        raise LeaseNotFoundError(lease=self.id)


class Early(LeaseAround):
    """Ends with its first keep-alive."""

    def keep_alive(self) -> float:
        """Its end, and the answer of a renewal."""
        self.inner.revoke()
        return self.ttl_seconds


class WrongLeases(WrappedEngine):
    """An engine whose leases are of one kind."""

    kind: type[LeaseAround] = LeaseAround

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        """A wrong one."""
        return self.kind(self.inner.lease(ttl_seconds, resume=resume), self.inner)


class RefusedPuts(WrappedEngine):
    """An engine that refuses a write on a living lease."""

    def commit(self, commit: Commit) -> int:
        """Refuse what is put on a lease but for the first time."""
        puts = [put for put in commit.mutations if isinstance(put, Put) and put.lease]
        if any(put.key == b"kept too" for put in puts):
            raise LeaseNotFoundError(lease=puts[0].lease)
        return self.inner.commit(commit)


class SameId(WrappedEngine):
    """An engine that grants one lease again and again."""

    granted: Lease | None = None

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        """The first one."""
        self.granted = self.granted or self.inner.lease(ttl_seconds, resume=resume)
        return self.granted


def judged(inner: Engine, folder: Path, engine: Engine, work: Callable[[Engine], None]) -> list[Finding]:
    """Record some work on an engine around `inner`, whose log is the truth."""
    path = folder / "history.jsonl"
    start = inner.commit(Commit((), (Put(b"begin", b""),)))
    with inner.snapshot() as snapshot:
        before = tuple(snapshot.scan(ALL_KEYS))
    watch = inner.watch(ALL_KEYS, after=start)
    with path.open("ab") as file:
        recorder = HistoryEngine(engine, Journal(file.fileno(), "client", clock=CLOCK), closes_inner=False)
        # Why: the work may meet a fault itself; the checker must find it as well.
        with suppress(pytest.fail.Exception, LeaseNotFoundError):
            work(recorder)
    with inner.snapshot() as snapshot:
        end, after = snapshot.revision, tuple(snapshot.scan(ALL_KEYS))
    events = tuple(watch.poll(0)) if end > start else ()
    truths = [Truth(start, entries=before), Truth(end, events), Truth(end, entries=after)]
    return check_history(History([*truths, *read_records(path)]), patience_seconds=0)


def test_right_leases_hold(tmp_path: Path) -> None:
    with MemoryEngine(clock=CLOCK) as inner:
        assert judged(inner, tmp_path, inner, held) == []


@pytest.mark.parametrize("kind", [Unrenewed, Unrevoked, Undying, TooLong, TooShort, Lost, Early])
def test_a_wrong_lease_is_refused(tmp_path: Path, kind: type[LeaseAround]) -> None:
    with MemoryEngine(clock=CLOCK) as inner:
        engine = WrongLeases(inner, closes_inner=False)
        engine.kind = kind
        assert {finding.wrong for finding in judged(inner, tmp_path, engine, held)} == {Wrong.LEASE}


@pytest.mark.parametrize("kind", [RefusedPuts, SameId])
def test_wrong_leases_of_an_engine_are_refused(tmp_path: Path, kind: type[WrappedEngine]) -> None:
    with MemoryEngine(clock=CLOCK) as inner:
        findings = judged(inner, tmp_path, kind(inner, closes_inner=False), held)
        assert {finding.wrong for finding in findings} == {Wrong.LEASE}


def test_a_lease_that_does_not_end_is_refused(tmp_path: Path) -> None:
    """Nobody who recorded it has kept it alive, and its entries are read long after its time."""

    def work(engine: Engine) -> None:
        lease = engine.lease(10)
        engine.commit(Commit((), (Put(b"a", b"~1~", lease.id),)))
        for _ in range(3):
            CLOCK.advance(6)
            inner.lease(10, resume=lease.id).keep_alive()
            look(engine)

    with MemoryEngine(clock=CLOCK) as inner:
        assert {finding.wrong for finding in judged(inner, tmp_path, inner, work)} == {Wrong.LEASE}


def test_a_write_on_a_lease_that_has_ended_is_refused(tmp_path: Path) -> None:
    class Reopened(LeaseAround):
        ttl_seconds = 10.0

    class Reopening(WrappedEngine):
        def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
            return Reopened(self.inner.lease(10 * ttl_seconds, resume=resume), self.inner)

    def work(engine: Engine) -> None:
        lease = engine.lease(10)
        engine.commit(Commit((), (Put(b"a", b"~1~", lease.id),)))
        CLOCK.advance(11)
        inner.commit(Commit((), (Delete(b"a"),)))  # as the end of the lease does
        engine.commit(Commit((), (Put(b"b", b"~2~", lease.id),)))

    with MemoryEngine(clock=CLOCK) as inner:
        findings = judged(inner, tmp_path, Reopening(inner, closes_inner=False), work)
        assert {finding.wrong for finding in findings} == {Wrong.LEASE}


def test_an_end_that_was_not_recorded_is_not_promised_away(tmp_path: Path) -> None:
    """A revoke whose answer was lost may have happened, and a keep-alive whose answer was lost may have renewed the lease."""

    class Unsure(LeaseAround):
        def revoke(self) -> None:
            """It happens, and nobody is told."""
            self.inner.revoke()
            raise EngineUnavailableError(engine="memory", problem="no answer")

        def keep_alive(self) -> float:
            """It happens, and nobody is told."""
            self.inner.keep_alive()
            raise EngineUnavailableError(engine="memory", problem="no answer")

    def work(engine: Engine) -> None:
        revoked, kept = engine.lease(10), engine.lease(10)
        engine.commit(Commit((), (Put(b"a", b"~1~", revoked.id), Put(b"b", b"~1~", kept.id))))
        CLOCK.advance(6)
        for call in (revoked.revoke, kept.keep_alive):
            with pytest.raises(EngineUnavailableError):
                call()
        CLOCK.advance(5)
        look(engine)
        engine.commit(Commit((), (Delete(b"b"),)))

    with MemoryEngine(clock=CLOCK) as inner:
        engine = WrongLeases(inner, closes_inner=False)
        engine.kind = Unsure
        assert judged(inner, tmp_path, engine, work) == []
