"""What clients do, on a store that records: `python -m tests.history.clients URL NAME SEED FOLDER`, until standard input ends.

Two threads write and read through typed tables, and one lists and watches; they share one engine. Every commit leaves a mark
that no other one leaves.
"""

import os
import random
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from keyplan.engine import ALL_KEYS, SYSTEM_CLOCK, Engine, KeyRange, open_engine
from keyplan.errors import (
    EngineOpenError,
    EngineUnavailableError,
    HistoryCompactedError,
    KeyplanError,
    LeaseNotFoundError,
)
from keyplan.layout import Counter, Index, Layout, Table, Unique
from keyplan.store import Store, Transaction
from keyplan.testing.history import HistoryEngine, Journal

__all__ = ["Client", "Ledger"]

_LIST_MARKS_MAX: Final = 30
_GROUP_MEMBERS_MAX: Final = 25
_PATIENCE_SECONDS: Final = 60.0
WRITERS: Final = 2


class Register(msgspec.Struct, frozen=True):
    """One value, and whose it is."""

    owner: str
    mark: str


class Member(msgspec.Struct, frozen=True):
    """A member of a group, or the holder of a ticket."""

    mark: str


class Marks(msgspec.Struct, frozen=True):
    """Everything that was appended."""

    marks: list[str]


class MemberKey(NamedTuple):
    group: str
    number: str


class Ledger(Layout, root="/history/"):
    """Registers, sets, lists and a counter, with indexes, so that a commit writes several keys."""

    registers = Table("registers/{register}", key=str, value=Register)
    by_owner = Index("by-owner/{owner}/{register}", of=registers, key=str)
    members = Table("groups/{group}/{number}", key=MemberKey, value=Member)
    by_mark = Unique("by-mark/{mark}", of=members, key=str)
    lists = Table("lists/{list}", key=str, value=Marks)
    tickets = Table("tickets/{ticket}", key=str, value=Member)
    held = Table("held/{register}", key=str, value=Register, lease=True)
    next_ticket = Counter("next-ticket", start=1)


class Writer:
    """One thread's operations, drawn from its own seed."""

    def __init__(self, engine: Engine, journal: Journal, seed: str) -> None:
        self._journal = journal
        self._engine = HistoryEngine(engine, journal, closes_inner=False)
        self._store = Store(self._engine)
        self._ledger = Ledger(self._store)
        self._chance = random.Random(seed)
        self._numbers = 0
        self._kinds: list[Callable[[], None]] = [
            self.read_register,
            self.write_register,
            self.compare_and_set,
            self.add_member,
            self.list_members,
            self.empty_group,
            self.append,
            self.take_ticket,
            self.look_late,
            self.hold_lease,
        ]

    def step(self) -> None:
        """Do one operation, drawn by chance. Raises what its reads raise."""
        self._chance.choices(self._kinds, weights=[4, 3, 3, 5, 1, 0.5, 4, 3, 2, 1])[0]()

    def _name(self, kind: str, count: int) -> str:
        return f"{kind}{self._chance.randrange(count)}"

    # ---- register ----------------------------------------------------------------------------------------------------------

    def read_register(self) -> None:
        self._ledger.registers.get(self._name("r", 5))

    def write_register(self) -> None:
        with self._journal.act("register: write") as acting:
            record = Register(self._name("o", 3), acting.mark)
            acting.revision = self._ledger.registers.put(self._name("r", 5), record)

    def compare_and_set(self) -> None:
        name = self._name("r", 5)
        before = self._ledger.registers.versioned(name)
        if before is None:
            return
        with self._journal.act("register: compare and set") as acting:
            record = Register(self._name("o", 3), acting.mark)
            acting.revision = self._ledger.registers.put(name, record, expected_revision=before.revision)

    # ---- set ---------------------------------------------------------------------------------------------------------------

    def add_member(self) -> None:
        self._numbers += 1
        key = MemberKey(self._name("g", 4), f"{self._journal.client}.{self._numbers % _GROUP_MEMBERS_MAX}")
        with self._journal.act("set: add") as acting:
            acting.revision = self._ledger.members.put(key, Member(acting.mark))

    def list_members(self) -> None:
        list(self._ledger.members.list(self._name("g", 4)))

    def empty_group(self) -> None:
        group = self._name("g", 4)
        with self._journal.act("set: remove all") as acting:

            def work(ledger: Ledger) -> None:
                for key, _ in list(ledger.members.list(group, limit=20)):
                    ledger.members.delete(key)
                ledger.registers.put("emptied", Register(group, acting.mark))

            acting.revision = self._committed(work)

    # ---- append, counter ---------------------------------------------------------------------------------------------------

    def append(self) -> None:
        name = self._name("l", 3)
        with self._journal.act("append") as acting:

            def work(ledger: Ledger) -> None:
                before = ledger.lists.get(name)
                kept = [] if before is None or len(before.marks) >= _LIST_MARKS_MAX else before.marks
                ledger.lists.put(name, Marks([*kept, acting.mark]))

            acting.revision = self._committed(work)

    def take_ticket(self) -> None:
        with self._journal.act("counter: take a ticket") as acting:

            def work(ledger: Ledger) -> None:
                ledger.tickets.insert(str(ledger.next_ticket.next()), Member(acting.mark))

            acting.revision = self._committed(work)

    def _committed(self, work: Callable[[Ledger], None]) -> int:
        last: list[Transaction] = []

        def attempt(transaction: Transaction) -> None:
            last[:] = [transaction]
            work(Ledger(transaction))

        self._store.run(attempt)
        return last[0].revision

    # ---- leases ------------------------------------------------------------------------------------------------------------

    def hold_lease(self) -> None:
        """Put a register on a lease, keep it alive, and revoke it or leave it to its end."""
        lease = self._engine.lease(self._chance.choice([1.5, 600.0]))
        with self._journal.act("lease: write") as acting:
            record = Register(self._name("o", 3), acting.mark)
            acting.revision = self._ledger.held.put(self._name("h", 4), record, lease=lease.id)
        if self._chance.random() < 0.5:
            with suppress(LeaseNotFoundError):
                lease.keep_alive()
                lease.seconds_left()
        if self._chance.random() < 0.7:
            lease.revoke()

    # ---- reads of one state ------------------------------------------------------------------------------------------------

    def look_late(self) -> None:
        """Take a snapshot, and read it only after others may have committed."""
        with self._store.snapshot() as snapshot:
            threading.Event().wait(self._chance.choice([0.0, 0.002, 0.02]))
            ledger = Ledger(snapshot)
            ledger.registers.get_many([f"r{number}" for number in range(5)])
            ledger.next_ticket.peek()
            list(ledger.members.list(self._name("g", 4), limit=5))


class Watcher:
    """Lists, watches on from the list's revision, and begins anew: by chance, or when history was compacted."""

    def __init__(self, engine: Engine, journal: Journal, seed: str) -> None:
        self._engine = HistoryEngine(engine, journal, closes_inner=False)
        self._chance = random.Random(seed)
        self._range = ALL_KEYS
        self._after = 0

    def follow(self, stop: threading.Event) -> None:
        """Watch until `stop`, then up to the store's revision at that time. Raises AssertionError when it stays behind."""
        give_up_at = SYSTEM_CLOCK.monotonic() + _PATIENCE_SECONDS
        while True:
            if not stop.is_set():
                give_up_at = SYSTEM_CLOCK.monotonic() + _PATIENCE_SECONDS
            try:
                self._list()
                if self._watch(stop, give_up_at):
                    return
            except (HistoryCompactedError, EngineUnavailableError):
                if SYSTEM_CLOCK.monotonic() > give_up_at:
                    raise
                threading.Event().wait(0.02)

    def _list(self) -> None:
        self._range = self._chance.choice([ALL_KEYS, KeyRange.of_prefix(b"/history/groups/g1/")])
        with self._engine.snapshot() as snapshot:
            for _ in snapshot.scan(self._range, limit=200):
                pass
            # Why sometimes earlier: what comes out of the history is put together otherwise than what comes live.
            self._after = max(snapshot.revision - self._chance.choice([0, 0, 50]), 1)

    def _watch(self, stop: threading.Event, give_up_at: float) -> bool:
        watch = self._engine.watch(self._range, after=self._after)
        try:
            for _ in range(self._chance.randrange(20, 200)):
                if stop.is_set():
                    break
                watch.poll(0.1)
            if not stop.is_set():
                return False
            with self._engine.snapshot() as snapshot:
                last = snapshot.revision
            while watch.revision < last:
                assert SYSTEM_CLOCK.monotonic() < give_up_at, f"the watch stays at {watch.revision}, before {last}"
                watch.poll(0.1)
            return True
        finally:
            watch.close()


class Client:
    """The threads of one client, on an engine that they share. `end` raises what went wrong in them."""

    def __init__(self, engine: Engine, name: str, seed: int, folder: Path) -> None:
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        works: list[Callable[[], None]] = []
        for number in range(WRITERS):
            writer_name = f"{name}.{number}"
            writer = Writer(engine, journal_in(folder, writer_name), f"{writer_name} {seed}")
            works.append(lambda writer=writer: self._write(writer))  # type: ignore[misc]  # mypy: a default in a lambda
        watcher = Watcher(engine, journal_in(folder, f"{name}.w"), f"{name}.w {seed}")
        works.append(lambda: watcher.follow(self._stop))
        self._threads = [threading.Thread(target=self._guarded, args=(work,), daemon=True) for work in works]
        for thread in self._threads:
            thread.start()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (KeyplanError, AssertionError) as error:
            self._errors.append(error)

    def _write(self, writer: Writer) -> None:
        while not self._stop.is_set():
            try:
                writer.step()
            except (EngineUnavailableError, HistoryCompactedError):
                self._stop.wait(0.02)

    def end(self) -> None:
        """Stop and wait. Raises AssertionError, or the error of a thread."""
        self._stop.set()
        for thread in self._threads:
            thread.join(_PATIENCE_SECONDS * 2)
            assert not thread.is_alive(), "a client hangs"
        if self._errors:
            raise self._errors[0]


def journal_in(folder: Path, client: str) -> Journal:
    """Return a journal in a new file of the folder."""
    return Journal(os.open(folder / f"{client}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), client)


def opened(url: str) -> Engine:
    """Open an engine, and try again while its servers are down."""
    give_up_at = SYSTEM_CLOCK.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return open_engine(url)
        except EngineOpenError:
            if SYSTEM_CLOCK.monotonic() > give_up_at:
                raise
            threading.Event().wait(0.1)


def main(url: str, name: str, seed: int, folder: Path) -> None:
    """Run one client until standard input ends: that is also when whoever started it is dead."""
    with opened(url) as engine:
        client = Client(engine, name, seed, folder)
        sys.stdin.read()
        client.end()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
