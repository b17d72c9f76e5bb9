"""No service that is installed has the server's engine, but for those that are named: what it holds leads to confined ones."""

import gc
from collections import deque
from importlib.metadata import entry_points
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

import pytest

from keyplan.engine import ALL_KEYS, Area, Commit, ConfinedEngine, Delete, KeyRange, MemoryEngine, Put
from keyplan.errors import AccessDeniedError, InvalidInputError, LayoutMismatchError, LeaseNotFoundError
from keyplan.keyspace import GrantedReach
from keyplan.layout import Layout, Table, Unique
from keyplan.maintenance import note_layout
from keyplan.server import (
    SERVICE_GROUP,
    WHOLE_STORE,
    Access,
    Application,
    Service,
    ServiceContext,
    Stores,
    layout_areas,
    layout_state_areas,
)
from keyplan.store import IndexStates, RootNotes, Store

SERVICES: Final = sorted(
    point.name for point in entry_points(group=SERVICE_GROUP) if point.value.startswith("keyplan.")
)

# What has the engine on purpose, and gives out what is confined.
WAYS: Final = (ServiceContext, Stores, ConfinedEngine, GrantedReach)
BESIDE: Final = (ModuleType, type)


def settings_of(name: str, folder: Path) -> dict[str, str]:
    (folder / "cloudchamber.yaml").write_text("webServer:\n  systemAccountPassword: adminPassword\n")
    given = {"hepnos": {"hepnos.store": "memory:"}, "cloudchamber": {"cloudchamber.config": str(folder)}}
    return given.get(name, {})


def builder_of(name: str) -> Any:
    (point,) = [point for point in entry_points(group=SERVICE_GROUP) if point.name == name]
    return point.load()


def leads_to(found: object, engine: MemoryEngine) -> list[str]:
    """Return the way from an object to the engine, as the types of what it leads over; empty when there is none."""
    come_from: dict[int, tuple[object, int]] = {id(found): (found, 0)}
    waiting: deque[object] = deque([found])
    while waiting:
        one = waiting.popleft()
        if one is engine:
            way: list[str] = []
            at = id(one)
            while at:
                way.append(type(come_from[at][0]).__qualname__)
                at = come_from[at][1]
            return way[::-1]
        if isinstance(one, (*WAYS, *BESIDE)):
            continue
        # Why not a function's module: what all modules have leads everywhere.
        referents = (
            [one.__closure__, one.__defaults__, one.__kwdefaults__, one.__dict__]
            if isinstance(one, FunctionType)
            else gc.get_referents(one)
        )
        for referent in referents:
            if id(referent) not in come_from and referent is not None:
                come_from[id(referent)] = (referent, id(one))
                waiting.append(referent)
    return []


def built(name: str, builder: Any, engine: MemoryEngine, folder: Path) -> Service:
    application = Application.build(engine, {name: builder}, settings=settings_of(name, folder))
    (service,) = application.services
    return service


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_that_is_not_named_holds_the_engine(name: str, tmp_path: Path) -> None:
    engine = MemoryEngine()
    service = built(name, builder_of(name), engine, tmp_path)
    way = leads_to(service, engine)
    assert bool(way) == (name in WHOLE_STORE), way


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_confines_its_callers(name: str, tmp_path: Path) -> None:
    service = built(name, builder_of(name), MemoryEngine(), tmp_path)
    assert service.is_confined


def test_the_way_to_an_engine_is_found_wherever_it_is_hidden() -> None:
    engine = MemoryEngine()

    class Holder:
        def __init__(self) -> None:
            self.listed = [{"a": (engine,)}]

        def act(self) -> None: ...

    def closed_over() -> object:
        return engine

    for found in (Holder(), Holder().act, closed_over, lambda it=engine: it):
        assert leads_to(found, engine)[-1] == "MemoryEngine"
    assert leads_to([1, "a", {}], engine) == []


def context_of(engine: MemoryEngine, name: str = "probe") -> ServiceContext:
    contexts: list[ServiceContext] = []

    def build(context: ServiceContext) -> Service:
        contexts.append(context)
        return Service(name)

    Application.build(engine, {name: build}, access=Access())
    return contexts[0]


def test_who_is_not_named_is_refused_the_engine() -> None:
    with pytest.raises(InvalidInputError, match="service probe"):
        context_of(MemoryEngine()).whole_store()
    engine = MemoryEngine()
    context_of(engine, "keyspaces").whole_store().commit(Commit((), (Put(b"anywhere", b"x"),)))
    assert engine.value(b"anywhere") == b"x"


def test_what_is_a_services_own_has_bounds_without_an_access_file_too() -> None:
    engine = MemoryEngine()
    engine.commit(Commit((), (Put(b"other", b"x"),)))
    own = context_of(engine).own(b"mine/", Area(KeyRange.of_prefix(b"shown/")))
    own.commit(Commit((), (Put(b"mine/a", b"1"),)))
    assert engine.value(b"mine/a") == b"1"
    for refused in (Put(b"other", b"y"), Delete(b"other"), Put(b"shown/a", b"y")):
        with pytest.raises(AccessDeniedError, match="probe"):
            own.commit(Commit((), (refused,)))
    with own.snapshot() as state, pytest.raises(AccessDeniedError):
        list(state.keys(ALL_KEYS))
    assert own.value(b"shown/a") is None
    own.close()
    assert engine.value(b"other") == b"x"


@pytest.mark.parametrize("place", [b"", Area(ALL_KEYS), Area(ALL_KEYS, can_write=True)])
def test_nobodys_own_is_everything(place: bytes | Area) -> None:
    with pytest.raises(InvalidInputError, match="nobody's own"):
        context_of(MemoryEngine()).own(place)


def test_the_leases_of_a_service_are_its_own() -> None:
    engine = MemoryEngine()
    own = context_of(engine).own(b"mine/")
    lease = own.lease(60)
    own.commit(Commit((), (Put(b"mine/a", b"1", lease.id),)))
    for taken, is_its_own in ((context_of(engine).own(b"mine/"), True), (context_of(engine, "b").own(b"mine/"), False)):
        if is_its_own:
            assert taken.lease(60, resume=lease.id).id == lease.id
            continue
        with pytest.raises(LeaseNotFoundError):
            taken.lease(60, resume=lease.id)
    lease.revoke()
    assert engine.value(b"mine/a") is None


class Shelf(Layout, root="shelf/"):
    """Books with an index."""

    books = Table("books/{title}", key=str, value=dict)
    labels = Table("{label}/label", key=str, value=str)
    by_author = Unique("by-author/{author}", of=books, key=str, bind={"author": "author"})


class Plain(Layout, root="shelf/"):
    """What the shelf was before."""

    books = Table("books/{title}", key=str, value=dict)


def test_a_layouts_areas_are_its_items_and_what_the_store_says_of_it() -> None:
    engine = MemoryEngine()
    own = Store(context_of(engine).own(*layout_areas(Shelf.bound(), read_only={"labels"})))
    shelf = Shelf(own)
    shelf.books.insert("Emma", {"author": "Austen"})
    assert shelf.by_author.key_of("Austen") == "Emma"
    # What is to be read only lies around the rest, and shows it.
    assert [key for key, _ in shelf.labels.list()] == []
    with pytest.raises(AccessDeniedError):
        shelf.labels.insert("fiction", "Fiction")
    note, state = layout_state_areas(Shelf.bound())
    assert not note.can_write
    assert not state.can_write
    assert note.range.start.startswith(RootNotes.bound().root)
    assert state.range.start.startswith(IndexStates.bound().root)
    with pytest.raises(AccessDeniedError):
        own.engine.value(IndexStates.bound().root)
    note_layout(engine, Plain.bound())
    with pytest.raises(LayoutMismatchError):
        Shelf(Store(own.engine, layout_check="refuse"))
