"""The lines of HEPnOS: batches beside readers and deletions, writes over what exists, queues."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from keyplan.apps import hepnos
from keyplan.apps.hepnos.databases import Address, Databases
from keyplan.apps.hepnos.entry_files import EntryFile
from keyplan.apps.hepnos.keys import Kind, dataset_key
from keyplan.apps.hepnos.loading import Rows, Source, load_source
from keyplan.apps.hepnos.product_types import RowsType
from keyplan.apps.hepnos.queues import Queues, StoredQueues
from keyplan.apps.hepnos.store import DataStore
from keyplan.engine import Commit, Engine, KeyRange, MemoryEngine, PrefixedEngine, Put
from keyplan.errors import AlreadyExistsError, CommitConflictError, InvalidInputError
from keyplan.ring import ring_of
from keyplan.store import Store
from keyplan.testing.schedules import ACTOR_ERRORS, Outcome, Preemptions, Scenario, actor, as_in_some_order, restarts
from tests.apps.hepnos.queue_stand import cancelled_after, queues_in_loop
from tests.schedules.lines import Line, line_name

__all__ = ["HEPNOS_GROUPS"]

# ---- products --------------------------------------------------------------------------------------------------------------


def _datastore(store: Store) -> DataStore:
    """A HEPnOS store whose products are in this database; those of other kinds are not looked at."""
    own: dict[Kind, Engine] = {kind: MemoryEngine() for kind in Kind if kind is not Kind.PRODUCT}
    engines = {**own, Kind.PRODUCT: store.engine}
    rings = {kind: ring_of([engines[kind]], kind.layout, create=True) for kind in Kind}
    return DataStore(Databases(rings, Address("memory:")))


FIRST, SECOND, THIRD = (b"%016d" % number + b"\x00" * 24 + b"x#int64" for number in range(3))


def two_products(store: Store) -> None:
    databases = _datastore(store).databases
    databases.put(Kind.PRODUCT, 0, [FIRST, SECOND], [b"1", b"2"])


def _writes(*keys: bytes, mode: str, atomic: bool | None = None) -> Callable[[Store], None]:
    """Write keys in a mode: at once, or (`atomic` says which) in a batch."""

    def write(store: Store) -> None:
        datastore = _datastore(store)
        if atomic is None:
            datastore.databases.put(Kind.PRODUCT, 0, list(keys), [mode.encode()] * len(keys), mode=mode)
            return
        with datastore.batch(atomic=atomic) as batch:
            for key in keys:
                batch.write(Kind.PRODUCT, key, mode.encode(), mode)

    return write


def _deletes(store: Store) -> None:
    _datastore(store).remove(Kind.PRODUCT, FIRST)


def _reads(store: Store) -> list[bytes | None]:
    with _datastore(store).databases.snapshot(Kind.PRODUCT, 0) as snapshot:
        return snapshot.values([FIRST, SECOND, THIRD])


PRODUCT_ACTS: dict[str, Callable[[Store], object]] = {
    "write": _writes(FIRST, THIRD, mode="overwrite"),
    "write new": _writes(FIRST, THIRD, mode="new"),
    "write over": _writes(FIRST, SECOND, mode="exist"),
    "batch": _writes(FIRST, SECOND, THIRD, mode="overwrite", atomic=False),
    "atomic batch": _writes(FIRST, SECOND, THIRD, mode="overwrite", atomic=True),
    "atomic batch of new": _writes(FIRST, THIRD, mode="new", atomic=True),
    "atomic batch over": _writes(FIRST, SECOND, mode="exist", atomic=True),
    "delete": _deletes,
    "read": _reads,
}


def _of_products(names: tuple[str, ...]) -> Scenario:
    return Scenario(
        *[actor(PRODUCT_ACTS[name], name, answers=name == "read") for name in names],
        setup=two_products,
        invariants=[as_in_some_order],
    )


def products() -> Iterator[Line]:
    """What is written and deleted in pairs, and beside a reader, is as in some order."""
    names = [name for name in PRODUCT_ACTS if name != "read"]
    for place, name in enumerate(names):
        for other in names[place:]:
            yield Line(line_name(name, other), partial(_of_products, (name, other)))
        yield Line(line_name(name, "read"), partial(_of_products, (name, "read")))
    for name in ("batch", "atomic batch over"):
        yield Line(line_name(name, "delete", "read"), partial(_of_products, (name, "delete", "read")))


# ---- files whose events are numbered by entry ------------------------------------------------------------------------------


class _OneEvent(Source):
    """A file of event 0 of a subrun, by its entry or by a number of its own."""

    entries, entry_bytes = 1, 8

    def __init__(self, name: str) -> None:
        self.name, self.tables = name, dict[str, RowsType]()
        self.entry_file = EntryFile(name, name) if name != "own" else None

    def numbers(self) -> tuple[list[int], list[int], list[int]]:
        return [1], [0], [0]

    def read(self, begin: int, end: int) -> dict[str, Rows]:  # Why: it has no columns.
        return {}


def _dataset(store: Store) -> hepnos.DataSet:
    """A data set whose events and products are in this database; all else is there and not looked at."""
    parked = {kind: PrefixedEngine(store.engine, kind.value.encode() + b"/") for kind in (Kind.EVENT, Kind.PRODUCT)}
    rings = {kind: ring_of([parked.get(kind) or MemoryEngine()], kind.layout, create=True) for kind in Kind}
    databases = Databases(rings, Address("memory:"))
    databases.put(Kind.DATASET, 0, [dataset_key("d")], [bytes(16)])
    return DataStore(databases).root.ensure("d")


def a_dataset(store: Store) -> None:
    _dataset(store)


def _loads(name: str) -> Callable[[Store], str]:
    def load(store: Store) -> str:
        load_source(_dataset(store), _OneEvent(name))
        return name

    return load


def _at_least_one_is_told(outcome: Outcome) -> None:
    loaded = set(outcome.answers.values())
    assert len(loaded) < 2, f"{loaded} are one event, and nobody was told"


def _of_files(names: tuple[str, ...]) -> Scenario:
    return Scenario(
        *[actor(_loads(name), name) for name in names],
        setup=a_dataset,
        invariants=[_at_least_one_is_told],
        only_raises=(InvalidInputError,) if len({*names}) > 1 else (),
    )


def _of_one_that_crashes() -> Scenario:
    """A load that crashes, and is begun again, beside one of another file."""
    first = actor(_loads("a"), "a")
    return Scenario(
        first,
        restarts(first),
        actor(_loads("own"), "own"),
        setup=a_dataset,
        invariants=[_at_least_one_is_told],
        only_raises=(InvalidInputError,),
        faults={"a": "c"},
    )


def entry_files() -> Iterator[Line]:
    """Of loads that meet in a subrun at least one is told, unless they are of the same file."""
    for names in (("a", "b"), ("a", "own"), ("a", "a")):
        yield Line(line_name(*names), partial(_of_files, names), is_long=names == ("a", "a"))
    yield Line("a that crashes and begins again x own", _of_one_that_crashes)


# ---- queues ----------------------------------------------------------------------------------------------------------------


def _queues(store: Store) -> Queues:
    return Queues(StoredQueues(store, Store(MemoryEngine())))


def a_queue(store: Store) -> None:
    _queues(store).create("q", int)


def a_queue_of_two(store: Store) -> None:
    a_queue(store)
    _produces(1, 2)(store)


def _produces(*items: int) -> Callable[[Store], list[int]]:
    """Put items and close; return those that were taken."""

    def produce(store: Store) -> list[int]:
        taken: list[int] = []
        with suppress(hepnos.MissingError), _queues(store).open("q", int, mode="producer") as queue:
            for item in items:
                queue.put(item)
                taken.append(item)
        return taken

    return produce


def _takes_one(store: Store) -> list[int]:
    with suppress(hepnos.MissingError):
        found = _queues(store).open("q", int).get(0)
        return [] if found is None else [found]
    return []


def _works(store: Store) -> list[int]:
    """Take one, do its work, and then say that it is done."""
    item = _queues(store).open("q", int).take(0.0)
    if item is None:
        return []
    store.engine.commit(Commit((), (Put(b"/done/%d" % item.value, b""),)))
    item.acknowledge()
    return [item.value]


def _gives_back(store: Store) -> list[int]:
    """Take one, and fail at its work."""
    item = _queues(store).open("q", int).take(0.0)
    with suppress(KeyError):
        if item is not None:
            with item:
                raise KeyError
    return []


def _takes_all(store: Store) -> list[int]:
    """As a consumer does that may come before its producer: until it is told that there is nothing more."""
    found: list[int] = []
    with suppress(hepnos.MissingError):
        queue = _queues(store).open("q", int)
        while (item := queue.get(60.0)) is not None:
            found.append(item)
    return found


def _destroys(store: Store) -> None:
    _queues(store).destroy("q", int)


def _creates_and_produces(store: Store) -> list[int]:
    """A queue of the same name, made anew."""
    try:
        _queues(store).create("q", int)
    except AlreadyExistsError:
        return []
    return _produces(7)(store)


QUEUE_ACTS: dict[str, Callable[[Store], object]] = {
    "produce": _produces(11),
    "produce again": _produces(12),
    "produce two": _produces(21, 22),
    "take one": _takes_one,
    "take one again": _takes_one,
    "take all": _takes_all,
    "work": _works,
    "give back": _gives_back,
    "destroy": _destroys,
    "destroy again": _destroys,
    "create and produce": _creates_and_produces,
}
_PRODUCERS = {"produce", "produce again", "produce two", "create and produce"}
_TAKERS = {"take one", "take one again", "take all"}


def _each_item_is_taken_once(outcome: Outcome) -> None:
    """What was put is taken once or still there, in order; what is there was put; a new queue has none of an old one's."""
    answers = outcome.answers
    put = [item for name in _PRODUCERS & answers.keys() for item in answers[name]]
    taken = [item for name in _TAKERS & answers.keys() for item in answers[name]]
    old = [1, 2] if outcome.scenario.setup is a_queue_of_two else []
    left = _rest(outcome.store)
    assert len({*taken, *left}) == len(taken) + len(left), f"twice: {taken} were taken, {left} are left"
    assert {*taken, *left} <= {*old, *put}, f"from nowhere: {taken} were taken, {left} are left, {put} were put"
    if outcome.scenario.setup is a_queue and "take all" in answers:
        assert not left, f"{left} are left, and the consumer was told that there is nothing more"
    if not {"destroy", "destroy again"} & answers.keys():
        assert {*taken, *left} == {*old, *put}, f"lost: {taken} were taken, {left} are left, {put} were put"
        return
    made_anew = answers.get("create and produce", [])
    assert set(made_anew) <= {*taken, *left}, f"lost of the new queue: {made_anew} were put, {left} are left"
    if made_anew:
        assert not set(left) & set(old), f"of the old queue: {left}"


def _none_is_lost(outcome: Outcome) -> None:
    """Of a consumer that may crash: each item was worked on, is there, or somebody has it until his lease is over."""
    with outcome.store.engine.snapshot() as snapshot:
        done = [int(key.rpartition(b"/")[2]) for key in snapshot.keys(KeyRange.of_prefix(b"/done/"))]
    taken = [item for name in ("take one", "take all") for item in outcome.answers.get(name, [])]
    held = [record.item for _, record in hepnos.HEPnOSQueues(outcome.store).taken.list("q", "int64")]
    left = {*_rest(outcome.store), *(int(hepnos.product_type(int).decode(raw)) for raw in held)}
    assert {*done, *taken, *left} == {1, 2}, f"lost: {done} are done, {taken} were taken, {left} are left"
    assert len(taken) + len(done) == len({*taken, *done}), f"twice: {taken} were taken, {done} are done"


def _rest(store: Store) -> list[int]:
    queues = _queues(store)
    if not queues.names():
        assert not list(_raw_items(store)), "items of a queue that is no more"
        return []
    queue = queues.open("q", int)
    rest: list[int] = []
    while (item := queue.get(0)) is not None:
        rest.append(item)
    return rest


def _raw_items(store: Store) -> list[object]:
    return list(hepnos.HEPnOSQueues(store).items.keys("q", "int64"))


def _of_queues(names: tuple[str, ...], setup: Callable[[Store], None], faults: dict[str, str] | str = "") -> Scenario:
    return Scenario(
        *[actor(QUEUE_ACTS[name], name) for name in names],
        setup=setup,
        invariants=[_each_item_is_taken_once],
        faults=faults,
        only_raises=(*ACTOR_ERRORS, CommitConflictError, hepnos.MissingError),
    )


def _of_consumers(names: tuple[str, ...]) -> Scenario:
    return Scenario(
        *[actor(QUEUE_ACTS[name], name) for name in names],
        setup=a_queue_of_two,
        invariants=[_none_is_lost],
        faults={"work": "cu"},
        only_raises=ACTOR_ERRORS,
    )


def queues() -> Iterator[Line]:
    """Producers, consumers and who destroys a queue; each item is taken once."""
    for setup, names in [
        (a_queue, ("produce", "produce again")),
        (a_queue, ("produce", "take one")),
        (a_queue, ("produce", "take all")),
        (a_queue, ("produce two", "take all")),
        (a_queue_of_two, ("take one", "take one again")),
        (a_queue_of_two, ("take one", "take all")),
        (a_queue_of_two, ("take all", "destroy")),
        (a_queue_of_two, ("produce", "destroy")),
        (a_queue_of_two, ("destroy", "destroy again")),
        (a_queue_of_two, ("destroy", "create and produce")),
        (a_queue_of_two, ("take one", "destroy", "create and produce")),
    ]:
        # Why long: one that waits for two looks again and again. Others produce beside it, and two are produced beside one.
        is_long = names == ("produce two", "take all")
        yield Line(line_name(*names, setup.__name__), partial(_of_queues, names, setup), is_long=is_long)
    three = partial(_of_queues, ("produce", "destroy", "create and produce"), a_queue_of_two)
    yield Line("produce x destroy x create and produce", three, Preemptions(2), is_long=True)
    for names in (("give back", "take all"), ("give back", "take one")):
        yield Line(line_name(*names), partial(_of_queues, names, a_queue_of_two))
    for names in (("take one", "take one again"), ("take one", "take all")):
        lost = partial(_of_queues, names, a_queue_of_two, {"take one": "u"})
        yield Line(f"take one whose answers are lost x {names[1]}", lost, is_long=names[1] == "take all")
    for names in (("produce two", "take one"), ("produce two", "take all")):
        again = partial(_of_queues, names, a_queue, {"produce two": "u"})
        # Why long: a consumer that waits meets each of the lost answers at each of its looks.
        yield Line(f"produce two whose answers are lost x {names[1]}", again, is_long=names[1] == "take all")
    # Why not beside who takes all: that one waits for what the dead one has, and the clock stands.
    yield Line("work that crashes or loses answers x take one", partial(_of_consumers, ("work", "take one")))
    crashing = partial(_of_queues, ("destroy", "create and produce"), a_queue_of_two, {"destroy": "c"})
    yield Line("destroy that crashes x create and produce", crashing)


# ---- queues awaited --------------------------------------------------------------------------------------------------------


def _cancelled(act: str, turns: int) -> Callable[[Store], list[int]]:
    """A consumer on an event loop that is cancelled after so many turns of it; return what it was handed over by then."""

    async def work(store: Store) -> list[int]:
        queues = queues_in_loop(StoredQueues(store, Store(MemoryEngine())))

        async def consume(got: list[int]) -> None:
            consumer = await queues.open("q", int)
            if act == "get":
                got.append(await consumer.get(0))
            elif (item := await consumer.take(0)) is not None:
                async with item:
                    got.append(item.value)

        got, _ = await cancelled_after(turns, consume)
        await queues.end()
        return [item for item in got if item is not None]

    return lambda store: asyncio.run(work(store))


def _none_is_lost_by_a_cancellation(outcome: Outcome) -> None:
    """Each item was handed over or is there, and nobody has one."""
    taken = [item for answer in outcome.answers.values() for item in answer]
    left = [
        int(hepnos.product_type(int).decode(raw))
        for _, raw in hepnos.HEPnOSQueues(outcome.store).items.list("q", "int64")
    ]
    assert sorted([*taken, *left]) == [1, 2], f"lost or twice: {taken} were taken, {left} are left"
    assert not list(hepnos.HEPnOSQueues(outcome.store).taken.list("q", "int64")), "taken by nobody"


def _of_cancelled(act: str, turns: int) -> Scenario:
    return Scenario(
        actor(_cancelled(act, turns), "cancelled"),
        actor(_takes_one, "take one"),
        setup=a_queue_of_two,
        invariants=[_none_is_lost_by_a_cancellation],
        only_raises=ACTOR_ERRORS,
    )


def awaited_queues() -> Iterator[Line]:
    """A consumer that is cancelled at each turn of its event loop, beside another one."""
    for act in ("get", "take"):
        for turns in range(_TURNS):
            name = f"{act} cancelled after {turns} turns x take one"
            yield Line(name, partial(_of_cancelled, act, turns), baton="threads")


_TURNS = 28
"""More than a get takes, which is not cancelled."""


HEPNOS_GROUPS: dict[str, Callable[[], Iterator[Line]]] = {
    "hepnos products": products,
    "hepnos entry files": entry_files,
    "hepnos queues": queues,
    "hepnos queues awaited": awaited_queues,
}
