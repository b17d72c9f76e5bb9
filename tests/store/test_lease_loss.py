"""When a lease is lost: in the moment in which its time is over, neither later, however much hangs, nor before."""

import logging
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Event, Thread

import pytest

from keyplan.engine import Engine, MemoryEngine, WrappedEngine
from keyplan.engine import Lease as EngineLease
from keyplan.errors import EngineUnavailableError, LeaseNotFoundError
from keyplan.store import Lease, Store
from keyplan.store import lease as keeping
from keyplan.testing.faults import FakeClock
from tests.store.layouts import Blade, Site

SOON_SECONDS = 60.0


class Hanging(WrappedEngine):
    """Renewals and looks hang while `hangs` is set, until `go_on`; `raising` is what the next renewals raise instead."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self.hangs = False
        self.go_on = Event()
        self.entered: SimpleQueue[int] = SimpleQueue()
        self.renewed: SimpleQueue[int] = SimpleQueue()
        self.raising: list[BaseException] = []

    def lease(self, ttl_seconds: float, *, resume: int = 0) -> EngineLease:
        return _Hanging(self, self.inner.lease(ttl_seconds, resume=resume))


class _Hanging:
    def __init__(self, engine: Hanging, inner: EngineLease) -> None:
        self._engine, self._inner = engine, inner
        self.id, self.ttl_seconds, self.revoke = inner.id, inner.ttl_seconds, inner.revoke

    def keep_alive(self) -> float:
        self._pass()
        seconds = self._inner.keep_alive()
        self._engine.renewed.put(self.id)
        return seconds

    def seconds_left(self) -> float:
        self._pass()
        return self._inner.seconds_left()

    def _pass(self) -> None:
        if self._engine.hangs:
            self._engine.entered.put(self.id)
            self._engine.go_on.wait(SOON_SECONDS)
        if self._engine.raising:
            self._engine.entered.put(self.id)
            raise self._engine.raising.pop()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine(clock: FakeClock) -> Iterator[Hanging]:
    engine = Hanging(MemoryEngine(clock=clock))
    yield engine
    engine.go_on.set()


@pytest.fixture
def store(engine: Hanging, clock: FakeClock) -> Iterator[Store]:
    with Store(engine, clock=clock) as store:
        yield store
        engine.go_on.set()


def test_leases_whose_renewals_hang_are_lost_together(store: Store, engine: Hanging, clock: FakeClock) -> None:
    lost: SimpleQueue[Lease] = SimpleQueue()
    leases = [store.lease(9, on_loss=lost.put) for _ in range(20)]
    engine.hangs = True
    clock.advance(3.5)
    engine.entered.get(timeout=SOON_SECONDS)
    clock.advance(5.6)
    assert {lost.get(timeout=SOON_SECONDS) for _ in leases} == set(leases)


def test_is_lost_looks_at_the_clock(store: Store, engine: Hanging, clock: FakeClock) -> None:
    lease = store.lease(9)
    engine.hangs = True
    clock.advance(3.5)
    engine.entered.get(timeout=SOON_SECONDS)
    assert lease.loss == ""
    clock.advance(5.6)
    assert lease.is_lost
    assert lease.loss == "it could not be renewed in time: the engine has not answered"
    with pytest.raises(LeaseNotFoundError):
        Site(store).members.insert("m1", Blade(), lease=lease)


def test_a_renewal_that_hangs_does_not_hinder_others(store: Store, engine: Hanging, clock: FakeClock) -> None:
    store.lease(9)
    engine.hangs = True
    clock.advance(3.5)
    engine.entered.get(timeout=SOON_SECONDS)
    engine.hangs = False
    other = store.lease(6)
    clock.advance(2.5)
    assert engine.renewed.get(timeout=SOON_SECONDS) == other.id


def test_who_was_told_of_the_loss_is_not_told_that_it_lives(store: Store, engine: Hanging, clock: FakeClock) -> None:
    lease = store.lease(9, keep_alive=False)
    engine.hangs = True
    raised: SimpleQueue[type[Exception] | None] = SimpleQueue()
    caller = Thread(target=_noting(lease.keep_alive, raised))
    caller.start()
    engine.entered.get(timeout=SOON_SECONDS)
    clock.advance(8.9)
    assert lease.loss == ""
    clock.advance(0.2)
    assert lease.is_lost
    engine.go_on.set()
    caller.join()
    assert raised.get() is LeaseNotFoundError


def _noting(call: Callable[[], object], raised: "SimpleQueue[type[Exception] | None]") -> Callable[[], None]:
    def noted() -> None:
        try:
            call()
        except LeaseNotFoundError as error:
            raised.put(type(error))
        else:
            raised.put(None)

    return noted


def test_a_lease_that_somebody_else_renews_outlives_a_hiccup(store: Store, engine: Hanging, clock: FakeClock) -> None:
    held = store.lease(12, keep_alive=False)
    holder = engine.inner.lease(1, resume=held.id)
    clock.advance(5)
    holder.keep_alive()
    before = held.lives_until
    clock.advance(5)
    _until_looked(held, before)
    assert held.lives_until == before + 5
    engine.raising = [EngineUnavailableError(engine="hanging", problem="a hiccup")]
    clock.advance(5)
    engine.entered.get(timeout=SOON_SECONDS)
    assert not held.is_lost


def _until_looked(lease: Lease, before: float) -> None:
    """Let the keeper's look come, which the clock has made due."""
    _until(lambda: lease.lives_until > before)


def test_a_lease_that_was_taken_up_lives_for_what_is_left_of_it(store: Store, clock: FakeClock) -> None:
    lease = store.engine.lease(30)
    clock.advance(20)
    taken = store.resume_lease(lease.id, keep_alive=False)
    assert taken.lives_until == clock.monotonic() + 10


@pytest.fixture
def escaped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test in which an exception left a thread."""
    escaped: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda told: escaped.append(told.exc_type))
    yield
    assert escaped == []


class Logged(logging.Handler):
    """What was logged of leases."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: SimpleQueue[type[BaseException] | None] = SimpleQueue()

    def emit(self, record: logging.LogRecord) -> None:
        self.errors.put(record.exc_info[0] if record.exc_info else None)


@pytest.fixture
def logged() -> Iterator[Logged]:
    handler = Logged()
    keeping.LOGGER.addHandler(handler)
    yield handler
    keeping.LOGGER.removeHandler(handler)


FAULTS = [
    ValueError("a fault in a driver"), RuntimeError("cannot schedule new futures after interpreter shutdown"), MemoryError(),
    SystemExit(1), KeyboardInterrupt(), GeneratorExit(),
]  # fmt: skip


@pytest.mark.usefixtures("escaped")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_a_keeper_outlives_what_is_no_error_of_ours(
    store: Store, engine: Hanging, clock: FakeClock, logged: Logged, fault: BaseException
) -> None:
    lease = store.lease(12)
    engine.raising = [fault]
    clock.advance(4.1)
    assert logged.errors.get(timeout=SOON_SECONDS) is type(fault)
    clock.advance(1.1)
    assert engine.renewed.get(timeout=SOON_SECONDS) == lease.id
    assert not lease.is_lost


@pytest.mark.usefixtures("escaped")
@pytest.mark.parametrize(
    "fault",
    [*FAULTS, EngineUnavailableError(engine="hanging", problem="the engine was closed")],
    ids=lambda fault: type(fault).__name__,
)
def test_a_lease_whose_renewals_raise_is_lost_when_its_time_is_over(
    store: Store, engine: Hanging, clock: FakeClock, fault: BaseException
) -> None:
    told: SimpleQueue[Lease] = SimpleQueue()
    lease = store.lease(12, on_loss=told.put)
    engine.raising = [fault] * 20
    while not lease.is_lost:
        clock.advance(1.1)
        _until(lambda: not _keeper_of(store)._schedule._under_way)
    assert told.get(timeout=SOON_SECONDS) is lease
    assert lease.loss.startswith("it could not be renewed in time")


@pytest.mark.usefixtures("escaped")
def test_a_loss_is_told_where_no_thread_can_be_had(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: SimpleQueue[Lease] = SimpleQueue()

    def put_and_fail(lost: Lease) -> None:
        told.put(lost)
        raise ValueError("a fault in what is told")

    lease = store.lease(12, keep_alive=False, on_loss=put_and_fail)
    monkeypatch.setattr(keeping, "Thread", _refused_thread)
    clock.advance(13)
    assert lease.is_lost
    assert told.get(timeout=SOON_SECONDS) is lease


@pytest.mark.usefixtures("escaped")
def test_a_keeper_that_found_no_thread_finds_one_for_the_next_lease(
    store: Store, engine: Hanging, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(keeping, "Thread", _refused_thread)
        with pytest.raises(RuntimeError):
            store.lease(12)
    lease = store.lease(12)
    clock.advance(4.1)
    assert engine.renewed.get(timeout=SOON_SECONDS) == lease.id


def _refused_thread(*_: object, **options: object) -> Thread:
    raise RuntimeError("can't create new thread at interpreter shutdown")


def _keeper_of(store: Store) -> keeping.LeaseKeeper:
    assert isinstance(store._keeper, keeping.LeaseKeeper)
    return store._keeper


@pytest.mark.usefixtures("escaped")
def test_leases_that_wait_for_a_thread_are_renewed_whatever_it_raises(
    store: Store,
    engine: Hanging,
    clock: FakeClock,
    logged: Logged,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeping, "_LOOKS_MAX", 1)
    engine.hangs = True
    leases = [store.lease(9) for _ in range(3)]
    clock.advance(3.5)
    engine.entered.get(timeout=SOON_SECONDS)
    looking = store._keeper
    assert isinstance(looking, keeping.LeaseKeeper)
    _until(lambda: len(looking._waiting) == 2)
    engine.hangs, engine.raising = False, [ValueError("a fault in a driver")]
    engine.go_on.set()
    assert logged.errors.get(timeout=SOON_SECONDS) is ValueError
    renewed = {engine.renewed.get(timeout=SOON_SECONDS) for _ in range(2)}
    assert len(renewed) == 2
    assert renewed < {lease.id for lease in leases}


def test_a_renewal_that_finds_no_thread_is_tried_again(
    store: Store, engine: Hanging, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: SimpleQueue[str] = SimpleQueue()

    def refusing(*_: object, **options: object) -> Thread:
        monkeypatch.setattr(keeping, "Thread", Thread)
        refused.put(str(options["name"]))
        raise RuntimeError("can't start new thread")

    lease = store.lease(12)
    monkeypatch.setattr(keeping, "Thread", refusing)
    clock.advance(4.1)
    assert refused.get(timeout=SOON_SECONDS) == "keyplan-lease-renewal"
    clock.advance(1.1)
    assert engine.renewed.get(timeout=SOON_SECONDS) == lease.id
    assert not lease.is_lost


def _until(holds: Callable[[], bool]) -> None:
    waiting = Event()
    for _ in range(int(SOON_SECONDS / 0.01)):
        if holds():
            return
        waiting.wait(0.01)
    raise AssertionError("it does not come about")


def test_a_forked_process_looks_at_the_time_without_the_parents_locks(store: Store, clock: FakeClock) -> None:
    lease = store.lease(9, keep_alive=False)
    lease._process += 1  # as if this process were another one than that which made the lease
    with lease._lock:
        clock.advance(9.1)
        assert lease.is_lost
