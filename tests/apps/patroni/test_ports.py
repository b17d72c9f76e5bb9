"""Public ports: each is handed out once, none is lost, and an instance keeps its own."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest

from keyplan.apps.patroni import Broker
from keyplan.apps.patroni.diagnosis import FaultKind, diagnose
from keyplan.apps.patroni.leaked_ports import leaked_ports
from keyplan.apps.patroni.mending import mend
from keyplan.apps.patroni.ports import PortAllocator, PortRange, port_range, reads_of
from keyplan.apps.patroni.refusals import NoPortsLeftError
from keyplan.engine import Commit, Delete, MemoryEngine, Put
from keyplan.errors import EngineError, InvalidInputError
from keyplan.layout import Binding
from keyplan.store import Store, open_store
from keyplan.testing import checked
from keyplan.testing.faults import FailingEngine


@pytest.fixture
def store(check_after: Callable[..., AbstractContextManager[Store]]) -> Iterator[Store]:
    with check_after(open_store("memory:"), Broker) as opened:
        yield opened


def test_an_instance_keeps_its_port_and_nextport_stays(store: Store) -> None:
    broker = Broker(store)
    broker.allocations.insert("f1", 33006)
    broker.next_port.advance_to(33007)
    assert PortAllocator(store).allocate("f1") == 33006
    assert broker.next_port.peek() == 33007


def test_the_first_ports_are_33000_and_33001_as_decimal_text(store: Store) -> None:
    ports = PortAllocator(store)
    assert [ports.allocate("a"), ports.allocate("b"), ports.allocate("a")] == [33000, 33001, 33000]
    with store.engine.snapshot() as snapshot:
        kept = [snapshot.get(key) for key in (b"/routing/allocation/b", b"/routing/nextport", b"/_broker/ports/33001")]
    assert [entry.value for entry in kept if entry is not None] == [b"33001", b"33002", b"b"]


def test_without_nextport_it_goes_on_behind_the_highest_port(store: Store) -> None:
    Broker(store).allocations.insert("f1", 33006)
    assert PortAllocator(store).allocate("f2") == 33007


def test_a_nextport_that_is_behind_is_passed_over(store: Store) -> None:
    broker = Broker(store)
    for instance, port in (("a", 33001), ("b", 33002), ("c", 33009)):
        broker.allocations.insert(instance, port)
    broker.next_port.advance_to(33001)
    assert PortAllocator(store).allocate("d") == 33010
    assert broker.next_port.peek() == 33011


def test_a_port_that_came_back_is_handed_out_when_the_range_is_used_up(store: Store) -> None:
    broker, ports = Broker(store), PortAllocator(store, PortRange(33000, 33002))
    assert [ports.allocate(name) for name in "abc"] == [33000, 33001, 33002]
    revision = store.revision
    with pytest.raises(NoPortsLeftError):
        ports.allocate("d")
    assert store.revision == revision
    broker.allocations.delete("b")
    assert ports.allocate("d") == 33001
    with pytest.raises(NoPortsLeftError):
        ports.allocate("e")


def test_a_port_that_came_back_is_not_reused_while_there_are_others(store: Store) -> None:
    ports = PortAllocator(store, PortRange(33000, 33002))
    ports.allocate("a")
    Broker(store).allocations.delete("a")
    assert [ports.allocate(name) for name in "bcd"] == [33001, 33002, 33000]


@pytest.mark.leaves("missing-entry")
def test_a_port_that_another_program_wrote_or_deleted_is_not_handed_out_twice(store: Store) -> None:
    """A router of the document's time, or curl: it knows of no index."""
    broker, allocator = Broker(store), PortAllocator(store, PortRange(33000, 33003))
    broker.next_port.advance_to(33001)
    store.engine.commit(Commit((), (Put(b"/routing/allocation/theirs", b"33001"),)))
    assert allocator.allocate("a") == 33002
    # Its index is left behind: the port is the last that is given again.
    store.engine.commit(Commit((), (Delete(b"/routing/allocation/a"),)))
    assert [allocator.allocate(name) for name in ("b", "c", "d")] == [33003, 33000, 33002]
    with pytest.raises(NoPortsLeftError):
        allocator.allocate("e")


@pytest.mark.leaves("missing-entry")
def test_ports_that_another_program_freed_or_changed_are_told_of_and_given_again(store: Store) -> None:
    broker, allocator = Broker(store), PortAllocator(store, PortRange(33000, 33003))
    for name in "abc":
        allocator.allocate(name)
    assert leaked_ports(store) == []
    freed, changed, damaged = (b"/routing/allocation/a", b"/routing/allocation/b", b"/routing/allocation/c")
    store.engine.commit(Commit((), (Delete(freed), Put(changed, b"33003"), Put(damaged, b"no port"))))
    # What cannot be read says nothing of its port.
    assert leaked_ports(store) == [("a", 33000), ("b", 33001)]
    leaks = [fault for fault in diagnose(store) if fault.kind is FaultKind.LEAKED_PORT]
    assert [fault.subject for fault in leaks] == ["33000", "33001"]
    assert mend(store, leaks[0])
    assert not mend(store, leaks[0])
    assert leaked_ports(store) == [("b", 33001)]
    assert [allocator.allocate(name) for name in ("d", "e")] == [33000, 33001]
    assert not mend(store, leaks[1]), "it is somebody's by now"
    assert (broker.allocations.get("d"), broker.allocations.get("e"), leaked_ports(store)) == (33000, 33001, [])
    broker.allocations.delete("c", damaged_ok=True)


def test_ports_outside_the_range_do_not_count(store: Store) -> None:
    Broker(store).allocations.insert("old", 41000)
    assert PortAllocator(store, PortRange(40000, 40010)).allocate("a") == 40000


@pytest.mark.slow
def test_an_allocator_that_dies_at_any_step_shares_no_port_and_leaks_none() -> None:
    """Case 7: one allocator fails at each of its steps in turn; the next one goes on with what it left."""
    with FailingEngine(MemoryEngine()) as probe:
        PortAllocator(Store(probe)).allocate("a")
        steps = len(probe.steps)
    assert steps > 4
    for number in range(1, steps + 1):
        with MemoryEngine() as engine:
            dying = Store(FailingEngine(engine, at_step=number, closes_inner=False))
            with suppress(EngineError):
                PortAllocator(dying).allocate("a")
            surviving = PortAllocator(Store(engine))
            ports = [surviving.allocate(name) for name in ("b", "a", "c")]
            assert sorted(ports) == [33000, 33001, 33002], f"died at step {number}"
            assert [surviving.allocate(name) for name in ("b", "a", "c")] == ports


def test_fifty_allocators_at_once_share_no_port_and_leave_no_gap(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/store.kv"
    with checked.check_after(open_store(url), Broker) as store:
        allocators = [PortAllocator(store) for _ in range(4)]
        with ThreadPoolExecutor(50) as threads:
            ports = list(threads.map(lambda number: allocators[number % 4].allocate(f"i{number}"), range(50)))
        assert sorted(ports) == list(range(33000, 33050))
        assert Broker(store).next_port.peek() == 33050


@pytest.mark.parametrize("text", ["", "1", "0-5", "5-4", "1-65536", "a-b", "-1-5", "1-2-3", " 1-2"])
def test_a_range_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        port_range(text)


def test_a_range_is_read() -> None:
    assert port_range("33000-33999") == (33000, 33999)


def test_ports_for_reads_stand_beside_the_others_one_for_each(store: Store) -> None:
    ports = PortRange(33000, 33002)
    allocator = PortAllocator(store, ports, reads_first=reads_of("34000", ports))
    broker = Broker(store)

    def begin(binding: Binding, instance: str) -> None:
        allocator.allocate_reads_in(binding, instance, allocator.allocate_in(binding, instance))

    for instance in ("f1", "f2"):
        store.run(lambda binding, instance=instance: begin(binding, instance))  # type: ignore[misc]
    assert dict(broker.replica_ports.list()) == {"f1": 34000, "f2": 34001}
    # One that was made again has kept its port, here of a former range: there is none for reads beside it.
    store.run(lambda binding: allocator.allocate_reads_in(binding, "f3", 32000))
    assert not broker.replica_ports.exists("f3")


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "33000", "32998", "33002", "65534", "99999", "34000-34002"])
def test_ports_for_reads_are_none_of_the_others(text: str) -> None:
    with pytest.raises(InvalidInputError):
        reads_of(text, PortRange(33000, 33002))
