"""The lines of writers: in pairs and threes, with faults, beside readers, checks, watches, and leases that end."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations_with_replacement

from keyplan.engine import ALL_KEYS, Event
from keyplan.errors import InvalidRecordError
from keyplan.maintenance import check
from keyplan.store import Store
from keyplan.testing.schedules import (
    ACTOR_ERRORS,
    Scenario,
    acknowledged,
    actor,
    as_in_some_order,
    compacts,
    healthy,
    never,
    passes,
    watched,
)
from tests.maintenance.layouts import Blade, Site
from tests.schedules.lines import Line, combined, line_name
from tests.schedules.scenes import build_of, repairs, unbuilt_members
from tests.schedules.writers import READERS, WRITERS, two_records

__all__ = ["WRITER_GROUPS"]

SOUND = (healthy(Site), as_in_some_order, acknowledged)


def _of_writers(names: tuple[str, ...]) -> Scenario:
    actors = [actor(WRITERS[name], name, answers=True) for name in names]
    return Scenario(*actors, setup=two_records, layouts=[Site], invariants=SOUND)


def pairs() -> Iterator[Line]:
    """Every two writers."""
    for names in combined(list(WRITERS), 2):
        yield Line(line_name(*names), partial(_of_writers, names))


def triples() -> Iterator[Line]:
    """Every three writers. The suite has a third of them, and in it every two with a third of all writers."""
    order = list(WRITERS)
    for names in combined(order, 3):
        is_long = sum(map(order.index, names)) % 3 > 0
        yield Line(line_name(*names), partial(_of_writers, names), is_long=is_long)


FAULTY = ("put new", "delete", "rename other", "count")


def _with_faults(names: tuple[str, ...]) -> Scenario:
    actors = [actor(WRITERS[name], name) for name in names]
    return Scenario(
        *actors, setup=two_records, layouts=[Site], invariants=(healthy(Site), as_in_some_order), faults="cun"
    )


def faults() -> Iterator[Line]:
    """Crashes and lost answers at each call of two writers."""
    for names in combined(FAULTY, 2):
        yield Line(line_name(*names), partial(_with_faults, names))


def _with_reader(reader: str, names: tuple[str, ...]) -> Scenario:
    actors = [actor(WRITERS[name], name) for name in names]
    return Scenario(
        actor(READERS[reader], reader, answers=True), *actors, setup=two_records, layouts=[Site], invariants=SOUND
    )


READ_BESIDE = [("put new",), ("delete",), ("rename",), ("swap",), ("modify",)]
READ_BESIDE_TWO = [("put new", "delete"), ("rename", "rename other"), ("swap", "modify"), ("insert new", "put same")]


def readers() -> Iterator[Line]:
    """Readers beside one and two writers: what they are answered is as in some order."""
    for reader in READERS:
        for names in [*READ_BESIDE, *READ_BESIDE_TWO]:
            yield Line(line_name(reader, *names), partial(_with_reader, reader, names))


def _checking(store: Store) -> list[str]:
    return [str(finding) for finding in check(store, Site(store)) if not finding.kind.is_note]


def _with_check(names: tuple[str, ...]) -> Scenario:
    actors = [actor(WRITERS[name], name) for name in names]
    return Scenario(
        actor(_checking, "check"),
        *actors,
        setup=two_records,
        layouts=[Site],
        invariants=(never("check"), healthy(Site)),
    )


def checks() -> Iterator[Line]:
    """A check beside one and two writers never finds what is not there."""
    for name in WRITERS:
        yield Line(line_name("check", name), partial(_with_check, (name,)))
    for names in READ_BESIDE_TWO:
        yield Line(line_name("check", *names), partial(_with_check, names))


def watching(store: Store) -> tuple[int, list[Event], int]:
    """Watch everything from now on, look twice, and say from where to where."""
    with store.engine.snapshot() as snapshot:
        after = snapshot.revision
    watch = store.engine.watch(ALL_KEYS, after=after)
    events = [*watch.poll(0), *watch.poll(0)]
    return after, events, watch.revision


def _with_watch(names: tuple[str, ...], *, is_compacted: bool) -> Scenario:
    actors = [actor(WRITERS[name], name) for name in names]
    more = [compacts()] if is_compacted else []
    return Scenario(
        actor(watching, "watch"), *actors, *more, setup=two_records, layouts=[Site], invariants=[watched("watch")]
    )


def watches() -> Iterator[Line]:
    """A watch of everything beside writers, and beside a writer and a compaction."""
    for names in [
        ("put new",),
        ("insert new",),
        ("put new", "insert new"),
        ("delete", "rename other"),
        ("swap", "count"),
    ]:
        yield Line(line_name("watch", *names), partial(_with_watch, names, is_compacted=False))
    for name in ("put new", "insert new", "delete", "swap"):
        yield Line(line_name("watch", name, "compaction"), partial(_with_watch, (name,), is_compacted=True))


# ---- leases ----------------------------------------------------------------------------------------------------------------

FIRST_LEASE = 1


def one_member(store: Store) -> None:
    """A member on a lease of ten seconds, and a second lease of a hundred."""
    lease = store.lease(10, keep_alive=False)
    store.lease(100, keep_alive=False)
    Site(store).members.insert("m1", Blade("s1"), lease=lease)


def _resumed(store: Store, number: int = FIRST_LEASE) -> int:
    return store.resume_lease(number, keep_alive=False).id


MEMBER_ACTS: dict[str, Callable[[Store], object]] = {
    "keep alive": lambda store: store.resume_lease(FIRST_LEASE, keep_alive=False).keep_alive(),
    "revoke": lambda store: store.resume_lease(FIRST_LEASE, keep_alive=False).revoke(),
    "put on another": lambda store: Site(store).members.put("m1", Blade("s2"), lease=_resumed(store, 2)),
    "put on the same": lambda store: Site(store).members.put("m1", Blade("s3"), lease=_resumed(store)),
    "update": lambda store: Site(store).members.update("m1", Blade("s4")),
    "insert its value": lambda store: Site(store).members.insert("m2", Blade("s1"), lease=_resumed(store, 2)),
    "delete": lambda store: Site(store).members.delete("m1"),
    "rename": lambda store: Site(store).members.rename("m1", "m3"),
    "put without": lambda store: Site(store).members.put("m1", Blade("s5")),
    "repair": repairs(),
    "build": build_of("member_serial"),
}


def _with_leases(names: tuple[str, ...]) -> Scenario:
    actors = [actor(MEMBER_ACTS[name], name) for name in names]
    is_built = "build" in names
    return Scenario(
        *actors,
        passes(11),
        setup=unbuilt_members(one_member) if is_built else one_member,
        layouts=[Site],
        only_raises=(*ACTOR_ERRORS, InvalidRecordError),
    )


def leases() -> Iterator[Line]:
    """What is done to a leased record, alone and in pairs, beside the end of its lease."""
    for name in MEMBER_ACTS:
        yield Line(line_name(name, "expiry"), partial(_with_leases, (name,)))
    in_pairs = [name for name in MEMBER_ACTS if name != "build"]
    for names in combinations_with_replacement(in_pairs, 2):
        yield Line(line_name(*names, "expiry"), partial(_with_leases, names))


WRITER_GROUPS: dict[str, Callable[[], Iterator[Line]]] = {
    "pairs": pairs,
    "triples": triples,
    "faults": faults,
    "readers": readers,
    "checks": checks,
    "watches": watches,
    "leases": leases,
}
