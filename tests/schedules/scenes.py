"""What the tests of schedules share: set-ups and actors on the layout of tests/maintenance, and guards that are left out."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest

from keyplan.engine import Commit, Delete, Guard, KeyAbsent, KeyUnchanged
from keyplan.jobs import UNPACED
from keyplan.layout import Layout
from keyplan.maintenance import FindingKind, build_index, carry_out, check, drop_index, plan_repairs, prepare_index
from keyplan.store import Store
from keyplan.testing.schedules import ParkingEngine
from tests.maintenance.layouts import Blade, BladeKey, Site, write

__all__ = [
    "ENTRY_KEY",
    "OTHER",
    "R1",
    "RECORD_KEY",
    "STATE_KEY",
    "build",
    "drop",
    "guards_left_out",
    "one_record",
    "put_in_transaction",
    "repairs",
    "unbuilt",
]

R1 = BladeKey("r", "1")
RECORD_KEY = b"/site/rack/r/blades/1"
ENTRY_KEY = b"/site/by-serial/s1"
STATE_KEY = b"\x00ki/site/\x00by_serial"
OTHER = Blade("other")


def one_record(store: Store) -> None:
    Site(store).blades.insert(R1, Blade("s1", ["t"]))


def unbuilt(store: Store) -> None:
    """One record, and its unique index as if it were new."""
    one_record(store)
    prepare_index(store, Site(store), "by_serial")
    write(store, ENTRY_KEY)


def put_in_transaction(store: Store) -> None:
    with store.transaction() as transaction:
        Site(transaction).blades.put(R1, OTHER)


def build(store: Store) -> None:
    build_index(store, Site(store), "by_serial", pace=UNPACED)


def drop(store: Store) -> None:
    drop_index(store, Site(store), "by_serial")


def repairs(*kinds: FindingKind, layout: type[Layout] = Site) -> Callable[[Store], None]:
    """An actor that checks, and then repairs what it found of these kinds."""

    def repair(store: Store) -> None:
        found = [finding for finding in check(store, layout(store)) if finding.kind in kinds]
        for _ in carry_out(store, layout(store), plan_repairs(store, layout(store), found)):
            pass

    return repair


@contextmanager
def guards_left_out(is_left_out: Callable[[Guard, Commit], bool]) -> Iterator[None]:
    """Plant a defect: every controlled commit goes without the guards that are named."""
    carry_out = ParkingEngine.carry_out

    def planted(engine: ParkingEngine, step: object, commit: Commit) -> int:
        kept = tuple(guard for guard in commit.guards if not is_left_out(guard, commit))
        return carry_out(engine, step, msgspec.structs.replace(commit, guards=kept))  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParkingEngine, "carry_out", planted)
        yield


def of_absent_entry(guard: Guard, commit: Commit) -> bool:
    """The guard by which a commit that gives up a unique entry which it saw absent relies on that."""
    return isinstance(guard, KeyAbsent) and guard.key == ENTRY_KEY and RECORD_KEY in written(commit)


def of_entry_that_stays(guard: Guard, commit: Commit) -> bool:
    """The guard by which a commit that finds its unique entry right already relies on that."""
    return isinstance(guard, KeyUnchanged) and guard.key.startswith(b"/site/by-serial/")


def of_drop(guard: Guard, commit: Commit) -> bool:
    """The guard by which a drop removes entries only under its own state."""
    return guard_key(guard) == STATE_KEY and all(isinstance(each, Delete) for each in commit.mutations)


def guard_key(guard: Guard) -> bytes:
    return guard.key if isinstance(guard, KeyAbsent | KeyUnchanged) else guard.range.start


def written(commit: Commit) -> set[bytes]:
    return {mutation.key for mutation in commit.mutations if hasattr(mutation, "key")}


def build_of(name: str) -> Callable[[Store], None]:
    """An actor that builds an index."""

    def build(store: Store) -> None:
        build_index(store, Site(store), name, pace=UNPACED)

    return build


def unbuilt_members(fill: Callable[[Store], None]) -> Callable[[Store], None]:
    """A set-up with members, and their unique index as if it were new."""

    def set_up(store: Store) -> None:
        fill(store)
        prepare_index(store, Site(store), "member_serial")
        write(store, b"/site/member-serial/s1")

    return set_up
