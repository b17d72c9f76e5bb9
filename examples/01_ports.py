"""Ports for services: each service has one, no port has two, and asking twice gives the same answer.

A counter, a unique index and a transaction; the store is a folder, `memory:` would do as well.
"""

import tempfile
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct

import keyplan
from keyplan import Counter, Layout, Table, Unique


class Allocation(Struct):
    """What a service was given."""

    port: int


class Ports(Layout, root="/ports/"):
    """Who has which port."""

    allocations = Table("by-service/{service}", key=str, value=Allocation)
    by_port = Unique("by-port/{port}", of=allocations, key=int)
    next_port = Counter("next", start=33000)


def port_of(ports: Ports, service: str) -> int:
    """Return the service's port, given to it now if it has none."""

    def allocate(tx: Ports) -> int:
        allocation = tx.allocations.get(service)
        if allocation is None:
            allocation = Allocation(port=tx.next_port.next())
            tx.allocations.insert(service, allocation)
        return allocation.port

    # Why: run, not transaction: threads that meet here try again instead of failing.
    return ports.run(allocate)


with tempfile.TemporaryDirectory() as folder, keyplan.open(f"lmdb:{folder}/ports.kv") as store:
    ports = Ports(store)
    services = [f"service{number % 5}" for number in range(40)]
    with ThreadPoolExecutor(max_workers=8) as threads:
        given = dict(zip(services, threads.map(lambda service: port_of(ports, service), services), strict=True))
    assert sorted(given.values()) == [33000, 33001, 33002, 33003, 33004]
    for service, port in sorted(given.items()):
        assert ports.by_port.key_of(port) == service
        print(f"{service}  {port}")
