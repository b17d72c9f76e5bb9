"""What the tests of CloudChamber share: a store on each engine, inventories to import, and a look at raw keys."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import keyplan
from keyplan.apps.cloudchamber import (
    Blade,
    BladeDetails,
    BladeKey,
    Capacity,
    CloudChamber,
    Condition,
    InventoryKey,
    InventoryRecord,
    Rack,
    RackDetails,
    inventory_records,
    read_definition,
    validated,
)
from keyplan.engine import ALL_KEYS, Entry
from keyplan.store import Store
from tests.apps.cloudchamber.web import Web, served
from tests.servers.etcd import EtcdServer

Desired = Mapping[InventoryKey, InventoryRecord]
CheckAfter = Callable[..., AbstractContextManager[Store]]


@pytest.fixture(params=["lmdb", "etcd"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store is, on each engine that CloudChamber is kept on."""
    return own_url(request, tmp_path)


@pytest.fixture
def store(store_url: str, check_after: CheckAfter) -> Iterator[Store]:
    """An empty store, checked afterwards unless the test closed it."""
    with check_after(keyplan.open(store_url), CloudChamber) as opened:
        yield opened


@pytest.fixture
def chamber(store: Store) -> CloudChamber:
    return CloudChamber(store)


@pytest.fixture(scope="module", params=["lmdb", "etcd"])
def web(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """The REST API of a store that is empty but for the system account: one server for all tests of a module.

    Tests share it, and use names of their own.
    """
    folder = tmp_path_factory.mktemp("web")
    with served(own_url(request, folder), folder) as running:
        yield running


@pytest.fixture
def samples(shared: Path) -> Path:
    """The folder of real definition files."""
    return shared / "data" / "cloudchamber"


@pytest.fixture
def desired(samples: Path) -> Callable[[str], Desired]:
    """The records that a real definition file asks for, by the file's name."""
    return lambda name: inventory_records(validated(read_definition(samples / name)))


def own_url(request: pytest.FixtureRequest, folder: Path) -> str:
    """The URL of an empty store on the engine that the fixture's parameter names: lmdb or etcd."""
    if request.param == "etcd":
        server: EtcdServer = request.getfixturevalue("etcd_server")
        return server.emptied().url
    # Why: what a loss of power may take is tested with the engine.
    return f"lmdb:{folder / 'chamber.kv'}?durability=none"


def add_rack(chamber: CloudChamber, rack: str) -> None:
    """Add a rack that takes work."""
    chamber.racks.put(rack, Rack(details=RackDetails(enabled=True, condition=Condition.OPERATIONAL)))


def add_blades(chamber: CloudChamber, rack: str, *numbers: int, capacity: Capacity | None = None) -> None:
    """Add a rack and blades, all of which take work."""
    add_rack(chamber, rack)
    details = BladeDetails(enabled=True, condition=Condition.OPERATIONAL)
    for number in numbers:
        chamber.blades.put(BladeKey(rack, number), Blade(details=details, capacity=capacity))


def raw_entries(store: Store) -> list[Entry]:
    """Everything that the store holds, read behind the layout's back."""
    with store.engine.snapshot() as snapshot:
        return list(snapshot.scan(ALL_KEYS))


def raw_keys(store: Store) -> list[bytes]:
    return [entry.key for entry in raw_entries(store)]


def definition_yaml(*racks: str, blades: int = 1) -> bytes:
    """A definition with these racks, each with one PDU, one TOR and some blades, all of one kind."""
    ports = ", ".join(
        f"{{Index: {number}, Wired: true, Item: {{Type: blade, Id: {number}}}}}" for number in range(1, blades + 1)
    )
    capacity = "Capacity: {Cores: 1, MemoryInMb: 1, DiskInGb: 1, NetworkBandwidthInMbps: 1}"
    listed = ", ".join(f"{{Index: {number}, {capacity}}}" for number in range(1, blades + 1))
    body = "".join(
        f"""
      - Name: {rack}
        Pdus: [{{Index: 0, Ports: [{ports}]}}]
        Tors: [{{Index: 0, Ports: [{ports}]}}]
        Blades: [{listed}]"""
        for rack in racks
    )
    return f"Regions:\n- Name: r\n  Zones:\n  - Name: z\n    Racks:{body}\n".encode()
