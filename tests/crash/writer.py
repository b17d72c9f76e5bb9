"""The process that is killed: `python -m tests.crash.writer URL NAME SEED` writes without end and says what is done.

A line on standard output is an Ack in JSON; it is written after the commit returned, and by one system call.
"""

import os
import sys
from collections.abc import Callable

import msgspec

from keyplan.engine import Lease
from keyplan.errors import KeyplanError
from keyplan.store import Store, Transaction, open_store
from tests.crash.dictionary import Delete, Insert, Modify, Operation, Put, Rename, Update
from tests.crash.workload import Ack, LeasedPut, Revoke, Step, Together, steps
from tests.store.layouts import Blade, Rack, Site, leased


def carried_out(site: Site, operation: Operation) -> int:
    """Do one operation, and return the revision of its commit."""
    match operation:
        case Insert(key, blade):
            return site.blades.insert(key, blade)
        case Put(key, blade):
            return site.blades.put(key, blade)
        case Update(key, blade):
            return site.blades.update(key, blade)
        case Modify(key, watts):
            return site.blades.modify(key, lambda old: Blade(old.serial, old.tags, watts))
        case Delete(key):
            return site.blades.delete(key)
        case Rename(key, new_key):
            return site.blades.rename(key, new_key)


class Writer:
    """Does steps on a store. Its lease is granted when it is first needed."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._site = Site(store)
        self._name = name
        self._lease: Lease | None = None

    def do(self, number: int, step: Step) -> Ack:
        match step:
            case Together():
                return self._together(number, step)
            case LeasedPut(key, blade):
                if self._lease is None:
                    self._lease = self._store.engine.lease(86_400)
                lease = self._lease.id
                return self._alone(number, lambda: leased(self._site).blades.put(key, blade, lease=lease))
            case Revoke():
                if self._lease is not None:
                    self._lease.revoke()
                    self._lease = None
                return Ack(number, 0, 0, ["done"])
            case _:
                return self._alone(number, lambda: carried_out(self._site, step))

    def _alone(self, number: int, write: Callable[[], int]) -> Ack:
        try:
            return Ack(number, write(), 0, ["done"])
        except KeyplanError as error:
            return Ack(number, 0, 0, [type(error).__name__])

    def _together(self, number: int, step: Together) -> Ack:
        transactions: list[Transaction] = []

        def work(transaction: Transaction) -> tuple[int, list[str]]:
            transactions.append(transaction)
            site = Site(transaction)
            site.racks.put(self._name, Rack(self._name, step.height))
            return site.ports.next(step.numbers), [outcome(site, operation) for operation in step.operations]

        first, outcomes = self._store.run(work)
        return Ack(number, transactions[-1].revision, first, outcomes)


def outcome(site: Site, operation: Operation) -> str:
    """Do one operation, and return "done" or the name of the error."""
    try:
        carried_out(site, operation)
    except KeyplanError as error:
        return type(error).__name__
    return "done"


def main(url: str, name: str, seed: int) -> None:
    with open_store(url) as store:
        writer = Writer(store, name)
        for number, step in enumerate(steps(name, seed)):
            os.write(1, msgspec.json.encode(writer.do(number, step)) + b"\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
