"""Two writers of one inventory at once: what one has seen, the other has not changed."""

from collections.abc import Callable, Iterator

import pytest

from keyplan.apps.cloudchamber import (
    Blade,
    Capacity,
    Chamber,
    DeletePolicy,
    PartActual,
    PartsExistError,
    Pdu,
    Port,
    Rack,
)
from keyplan.apps.cloudchamber.conditions import ANY, NEW, REQUIRED, at_revision
from keyplan.apps.cloudchamber.go_served import GoChamber, GoRacks
from keyplan.apps.cloudchamber.inventory_parts import Part, PartKind
from keyplan.apps.cloudchamber.part_keys import DocumentPartKeys, GoPartKeys
from keyplan.apps.cloudchamber.rack_writer import NoPartError, NoRackError, RackWriter, RulesOfRackError
from keyplan.apps.cloudchamber.readable import DocumentRacks, RackReader
from keyplan.engine import Commit, Engine, MemoryEngine, WrappedEngine
from keyplan.errors import StaleRecordError
from keyplan.store import Store
from tests.apps.cloudchamber.definitions import assert_sound


class Interrupted(WrappedEngine):
    """Calls `between` once, before the next commit."""

    between: Callable[[], object] | None = None

    def commit(self, commit: Commit) -> int:
        between, self.between = self.between, None
        if between is not None:
            between()
        return super().commit(commit)


def writer_on(side: str, engine: Engine) -> tuple[RackWriter, RackReader]:
    store = Store(engine)
    if side == "go":
        go = GoChamber(store)
        return RackWriter(GoPartKeys(go)), GoRacks(go)
    chamber = Chamber(store)
    return RackWriter(DocumentPartKeys(chamber)), DocumentRacks(chamber)


RACK, BLADE, PDU = Part(PartKind.RACK, "ada"), Part(PartKind.BLADE, "ada", 1), Part(PartKind.PDU, "ada", 0)
A_BLADE = Blade(capacity=Capacity(cores=1, memory_in_mb=1, disk_in_gb=1, network_bandwidth_in_mbps=1))
WORKING = PartActual(sm_state="working")
ANOTHER = Capacity(cores=9, memory_in_mb=1, disk_in_gb=1, network_bandwidth_in_mbps=1)


@pytest.fixture(params=["document", "go"])
def writers(request: pytest.FixtureRequest) -> Iterator[tuple[RackWriter, RackWriter, Interrupted, RackReader]]:
    """Two writers of one store that has a rack, the engine of the first, and a reader."""
    memory = MemoryEngine()
    engine = Interrupted(memory)
    first, _ = writer_on(request.param, engine)
    second, reader = writer_on(request.param, memory)
    second.write(RACK, Rack(), NEW)
    yield first, second, engine, reader
    assert_sound(Store(memory))


Writers = tuple[RackWriter, RackWriter, Interrupted, RackReader]


def test_of_two_writers_with_one_etag_one_wins(writers: Writers) -> None:
    first, second, engine, reader = writers
    seen_by_both = second.write(BLADE, A_BLADE, NEW).revision
    engine.between = lambda: second.write(BLADE, A_BLADE, at_revision(seen_by_both))
    with pytest.raises(StaleRecordError):
        first.write(BLADE, Blade(capacity=ANOTHER), at_revision(seen_by_both))
    rack = reader.rack("ada")
    assert rack is not None
    assert rack.contents.blades[1].capacity == A_BLADE.capacity
    now = second.write(BLADE, A_BLADE, REQUIRED).revision
    engine.between = lambda: second.write(BLADE, A_BLADE, REQUIRED)
    with pytest.raises(StaleRecordError):
        first.delete(BLADE, at_revision(now), delete_policy=DeletePolicy.RESTRICT)


def test_no_part_is_left_of_a_rack_that_goes_meanwhile(writers: Writers) -> None:
    first, second, engine, reader = writers
    engine.between = lambda: second.delete(RACK, REQUIRED, delete_policy=DeletePolicy.CASCADE)
    with pytest.raises(NoRackError):
        first.write(BLADE, A_BLADE, NEW)
    assert reader.rack("ada") is None
    second.write(RACK, Rack(), NEW)
    engine.between = lambda: second.write(BLADE, A_BLADE, NEW)
    with pytest.raises(PartsExistError):
        first.delete(RACK, REQUIRED, delete_policy=DeletePolicy.RESTRICT)


@pytest.mark.parametrize("blades", [1, 70])
def test_two_writes_that_are_right_alone_are_not_both_made(writers: Writers, blades: int) -> None:
    """One blade more, and a PDU with a port for each of the others."""
    first, second, engine, _ = writers
    for number in range(blades):
        second.write(BLADE._replace(number=number), A_BLADE, NEW)
    pdu = Pdu(ports={number: Port() for number in range(blades)})
    engine.between = lambda: second.write(BLADE._replace(number=blades), A_BLADE, NEW)
    with pytest.raises(RulesOfRackError):
        first.write(PDU, pdu, NEW)
    engine.between = lambda: second.write(PDU, Pdu(ports={**pdu.ports, blades: Port()}), NEW)
    with pytest.raises(RulesOfRackError):
        first.write(BLADE._replace(number=blades + 1), A_BLADE, NEW)


def test_no_actual_state_is_left_of_a_part_that_goes_meanwhile(writers: Writers) -> None:
    first, second, engine, _ = writers
    second.write(BLADE, A_BLADE, NEW)
    engine.between = lambda: second.delete(BLADE, REQUIRED, delete_policy=DeletePolicy.RESTRICT)
    with pytest.raises(NoPartError):
        first.write_actual(BLADE, WORKING, ANY)
    second.write(BLADE, A_BLADE, NEW)
    engine.between = lambda: second.delete(RACK, REQUIRED, delete_policy=DeletePolicy.CASCADE)
    with pytest.raises(NoRackError):
        first.write_actual(BLADE, WORKING, ANY)
    second.write(RACK, Rack(), NEW)
    second.write(BLADE, A_BLADE, NEW)
    engine.between = lambda: second.write_actual(BLADE, WORKING, ANY)
    first.delete(BLADE, REQUIRED, delete_policy=DeletePolicy.RESTRICT)
    assert second.find_actual(BLADE) is None
    second.write(BLADE, A_BLADE, NEW)
    engine.between = lambda: second.write_actual(BLADE, WORKING, ANY)
    first.delete(RACK, REQUIRED, delete_policy=DeletePolicy.CASCADE)
    assert second.find_actual(BLADE) is None
