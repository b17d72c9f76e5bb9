"""The lines of rings that grow, and of a runm that starts or builds its indexes."""

from collections.abc import Callable, Iterator
from functools import partial
from uuid import UUID

from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.layout import Runm
from keyplan.apps.runm.records import Object
from keyplan.apps.runm.reindex import reindex
from keyplan.apps.runm.start import ensure_started, unreadable_indexes
from keyplan.errors import RingMismatchError
from keyplan.ring import rebalance, ring_of
from keyplan.store import Store
from keyplan.testing.checked import assert_healthy
from keyplan.testing.schedules import ACTOR_ERRORS, Outcome, Preemptions, Scenario, actor, healthy
from tests.ring.sites import Blade, BladeKey, Site
from tests.schedules.lines import Line, line_name

__all__ = ["RING_GROUPS"]

# ---- rings -----------------------------------------------------------------------------------------------------------------

BOUND = Site.bound()
RACKS = "abcd"


def _grown(*stores: Store) -> Site:
    return Site(Store(ring_of([store.engine for store in stores], BOUND)))


def two_of_three(*stores: Store) -> None:
    site = _grown(*stores[:2])
    for rack in RACKS:
        site.blades.insert(BladeKey(rack, "1"), Blade(f"s{rack}", ("t",)))
    site.notes.put("n", "old")


def _rebalances(*stores: Store) -> None:
    rebalance([store.engine for store in stores])


RING_WRITERS: dict[str, Callable[[Site], object]] = {
    **{
        f"put in {rack}": partial(lambda rack, site: site.blades.put(BladeKey(rack, "1"), Blade("new")), rack)
        for rack in RACKS
    },
    **{
        f"insert in {rack}": partial(lambda rack, site: site.blades.insert(BladeKey(rack, "2"), Blade("new")), rack)
        for rack in RACKS
    },
    "note": lambda site: site.notes.put("n", "new"),
    "count": lambda site: site.numbers.next(),
}


def _inserts_when_grown(*stores: Store) -> None:
    """A user of the grown ring, who comes as soon as it can be opened."""
    _grown(*stores).blades.insert(BladeKey("e", "1"), Blade("grown"))


def _writes(name: str) -> Callable[..., object]:
    return lambda *stores: RING_WRITERS[name](_grown(*stores[:2]))


def _nothing_is_lost(outcome: Outcome) -> None:
    """Once the ring has grown, it holds what was there and what was acknowledged, each key once."""
    engines = [store.engine for store in outcome.stores]
    rebalance(engines)
    ring = ring_of(engines, BOUND)
    site = Site(Store(ring))
    assert_healthy(Store(ring), BOUND)
    found = dict(site.blades.list())
    for rack in RACKS:
        assert BladeKey(rack, "1") in found, f"lost: the blade of rack {rack}"
    for name in outcome.answers:
        if name.startswith("put in"):
            assert found[BladeKey(name[-1], "1")].serial == "new", f"lost: {name}"
        elif name.startswith("insert in"):
            assert BladeKey(name[-1], "2") in found, f"lost: {name}"
        elif name == "insert when grown":
            assert BladeKey("e", "1") in found, "lost: what was inserted into the grown ring"
        elif name == "note":
            assert site.notes.get("n") == "new", "lost: the note"
        elif name == "count":
            assert site.numbers.next() > outcome.answers[name], "lost: the number that was given is given again"
    keys = [key for one in outcome.stored() for key, _, _ in one if not key.startswith(b"\x00")]
    assert len(set(keys)) == len(keys), "a key is in two databases"


def _ring_act(name: str) -> Callable[..., object]:
    if name == "insert when grown":
        return _inserts_when_grown
    return _rebalances if name.startswith("rebalance") else _writes(name)


def _growing(names: tuple[str, ...], faults: dict[str, str] | str = "") -> Scenario:
    return Scenario(
        *[actor(_ring_act(name), name) for name in names],
        setup=two_of_three,
        engines=3,
        invariants=[_nothing_is_lost],
        faults=faults,
        only_raises=(*ACTOR_ERRORS, RingMismatchError),
    )


def growing_rings() -> Iterator[Line]:
    """A ring that grows beside a writer who opened it before, or while it grows; with a crash at each call."""
    for name in RING_WRITERS:
        yield Line(line_name("rebalance", name), partial(_growing, ("rebalance", name)))
    for name in ("put in a", "put in c"):
        crashing = partial(_growing, ("rebalance", name), {"rebalance": "c"})
        yield Line(line_name("rebalance that crashes", name), crashing, is_long=name == "put in a")
    two = ("rebalance", "rebalance again")
    yield Line("rebalance x rebalance", partial(_growing, two), Preemptions(1))
    yield Line("rebalance x rebalance, two preemptions", partial(_growing, two), Preemptions(2), is_long=True)
    yield Line("rebalance x insert when grown", partial(_growing, ("rebalance", "insert when grown")))
    three = partial(_growing, (*two, "insert when grown"))
    yield Line("rebalance x rebalance x insert when grown", three, Preemptions(1), is_long=True)


# ---- runm ------------------------------------------------------------------------------------------------------------------


def _object(number: int, name: str = "") -> Object:
    return Object(UUID(int=1), "runm.provider_group", UUID(int=number), name or f"n{number}", tags=("t",))


def one_object(store: Store) -> None:
    Runm(store).objects.insert(UUID(int=1), _object(1))


def _starts(store: Store) -> None:
    ensure_started(Deployment(store))


def _reindexes(store: Store) -> None:
    reindex(store, "")


RUNM_ACTS: dict[str, Callable[[Store], object]] = {
    "insert": lambda store: Runm(store).objects.insert(UUID(int=2), _object(2)),
    "modify": lambda store: Runm(store).objects.modify(UUID(int=1), lambda _: _object(1, "other")),
    "delete": lambda store: Runm(store).objects.delete(UUID(int=1)),
    "start": _starts,
    "reindex": _reindexes,
}


def _is_started(outcome: Outcome) -> None:
    """A start after all of them ends, and a search index that can be read is whole."""
    ensure_started(Deployment(outcome.store))
    ensure_started(Deployment(outcome.store))
    if not unreadable_indexes(Deployment(outcome.store)):
        healthy(Runm)(outcome)


def _of_runm(names: tuple[str, ...], setup: Callable[[Store], None] | None) -> Scenario:
    actors = [actor(RUNM_ACTS[name], name) for name in names]
    return Scenario(*actors, setup=setup, layouts=[Runm], invariants=[_is_started])


def starts() -> Iterator[Line]:
    """Servers that start at once, and indexes that are built beside writers and a start."""
    for name in ("insert", "modify", "delete"):
        yield Line(line_name("reindex", name), partial(_of_runm, ("reindex", name), one_object), is_long=True)
    yield Line("reindex x start", partial(_of_runm, ("reindex", "start"), one_object), Preemptions(1), is_long=True)
    yield Line("start x start", partial(_of_runm, ("start", "start"), None), Preemptions(1))
    yield Line("start x insert", partial(_of_runm, ("start", "insert"), None), Preemptions(1))


RING_GROUPS: dict[str, Callable[[], Iterator[Line]]] = {
    "growing rings": growing_rings,
    "runm": starts,
}
